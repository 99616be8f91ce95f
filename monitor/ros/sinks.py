"""Recorder and exporter as sinks of the loop. Neither can stop it: what cannot be opened is told and left off."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from monitor.config import MonitorConfig
from monitor.engine import Monitor
from monitor.errors import BagError
from monitor.export.prometheus import Exporter
from monitor.messages import EpisodeRecord
from monitor.policy import Observation, PolicySpec
from monitor.recording.facts import BagFacts, package_version
from monitor.recording.recorder import Recorder, new_bag_folder
from monitor.steps import PolicyStep, StepReport

NAMES_TRIED = 5
LAST_SECOND = 2**31 - 1  # of a stamp


class ExporterSink:
    """The Prometheus page. `extra` adds totals of others to the monitor's."""

    def __init__(self, config: MonitorConfig, monitor: Monitor, spec: PolicySpec, extra: Callable[[], Mapping[str, int]] = dict) -> None:
        self._monitor, self._extra = monitor, extra
        self._exporter = Exporter(
            config.export,
            monitor.infos,
            spec.name,
            alarms=config.alarm_names,
            counters=tuple(extra()),
            policy_version=spec.version,
            tool_version=package_version("vla-monitor"),
        )

    @property
    def trouble(self) -> str:
        """Why there is no page; empty if there is one or none is wanted."""
        status = self._exporter.status()
        return status.reason if status.state == "off" else ""

    @property
    def status_text(self) -> str:
        """Address of the page, or why there is none."""
        return str(self._exporter.status())

    def start(self) -> None:
        """Serve the page, now or as soon as the port is free."""
        self._exporter.start()

    def episode(self, record: EpisodeRecord) -> None:
        """Nothing to show."""

    def step(self, observation: Observation, step: PolicyStep, report: StepReport, held: bool, update_seconds: float) -> None:
        """Show the step."""
        counters = {**self._monitor.counters, **self._extra()}
        self._exporter.publish(report, counters, inference_seconds=step.inference_seconds, update_seconds=update_seconds, held=held)

    def close(self) -> None:
        """Free the port."""
        self._exporter.close()


class RecorderSink:
    """The bag of one run of the node.

    Args:
        config, spec: of the run.
        say: takes a line of trouble, once per kind.
        stopped: called once, when nothing is recorded any more or from the start, with the reason and the report of the step at which it was seen.
    """

    def __init__(
        self,
        config: MonitorConfig,
        spec: PolicySpec,
        say: Callable[[str], None],
        stopped: Callable[[str, StepReport | None], None] = lambda reason, report: None,
    ) -> None:
        self._config, self._spec, self._say, self._stopped = config, spec, say, stopped
        self._recorder: Recorder | None = None
        self._not_opened = ""
        self._told: set[str] = set()

    @property
    def trouble(self) -> str:
        """Why nothing is recorded, or what is lost; empty if all is well or no bag is wanted."""
        off, losses = self._look()
        return off or "; ".join(losses.values())

    @property
    def status_text(self) -> str:
        """The bag's folder, or why there is none."""
        return self.trouble or (str(self._recorder.folder) if self._recorder is not None else "off")

    @property
    def dropped(self) -> int:
        """Messages that are not in the bag."""
        if self._recorder is None:
            return 0
        status = self._recorder.status()
        return status.dropped + status.failed

    def start(self) -> None:
        """Open the bag. One that cannot be opened is told."""
        if not self._config.recording.enabled:
            return
        try:
            self._recorder = self._open()
        except BagError as error:
            self._not_opened = str(error)
        except Exception as error:  # the robot must keep its policy, with or without a bag
            self._not_opened = f"{self._config.recording.folder}: no bag could be opened ({type(error).__name__}: {error})"
        self._tell(None)

    def episode(self, record: EpisodeRecord) -> None:
        """Record an episode event."""
        if self._recorder is not None:
            self._recorder.record_episode(record)

    def step(self, observation: Observation, step: PolicyStep, report: StepReport, held: bool, update_seconds: float) -> None:
        """Record step, report, changed alarms and the pictures that the policy saw."""
        recorder = self._recorder
        if recorder is None:
            return
        for camera, picture in observation.images.items():
            recorder.record_image(camera, observation.image_times.get(camera, observation.time), picture)
        stamp = _stamp(step.time)
        recorder.record_step(step, stamp_ns=stamp)
        recorder.record_report(report, held, stamp_ns=stamp)
        for alarm in report.alarms:
            if alarm.changed:
                recorder.record_alarm(alarm, report, stamp_ns=stamp)
        self._tell(report)

    def close(self) -> None:
        """Write what waits and close the bag."""
        if self._recorder is not None:
            self._recorder.close()
            self._tell(None)

    def _open(self) -> Recorder:
        facts = BagFacts(config=self._config, spec=self._spec)
        for attempt in range(NAMES_TRIED):
            recorder = Recorder(new_bag_folder(self._config.recording.folder), facts)
            try:
                recorder.open()
                break
            except BagError as error:  # another node may have taken the name since it was chosen
                if attempt == NAMES_TRIED - 1 or not isinstance(error.__cause__, FileExistsError):
                    raise
        return recorder

    def _look(self) -> tuple[str, dict[str, str]]:
        """Why nothing is recorded; and what is lost although it is, by kind."""
        if self._recorder is None:
            return self._not_opened, {}
        status = self._recorder.status()
        losses = {
            "dropped": f"{status.dropped} messages dropped, the disk is too slow" if status.dropped else "",
            "failed": f"{status.failed} messages dropped, they hold what cannot be written" if status.failed else "",
        }
        return status.reason, {kind: text for kind, text in losses.items() if text}

    def _tell(self, report: StepReport | None) -> None:
        off, losses = self._look()
        for kind, text in ({"off": off} if off else losses).items():
            if kind in self._told:
                continue
            self._told.add(kind)
            self._say(f"recording is off: {text}" if off else f"bag: {text}")
            if off:
                self._stopped(off, report)


def _stamp(seconds: float) -> int | None:
    """A header stamp in ns; None (that is, now) for a time that a stamp cannot hold."""
    return round(seconds * 1e9) if 0 <= seconds < LAST_SECOND else None
