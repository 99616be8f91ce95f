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


class ExporterSink:
    """The Prometheus page. `extra` adds totals of others to the monitor's."""

    def __init__(self, config: MonitorConfig, monitor: Monitor, spec: PolicySpec, extra: Callable[[], Mapping[str, int]] = dict) -> None:
        self._monitor, self._extra = monitor, extra
        self._exporter = Exporter(
            config.export,
            monitor.infos,
            spec.name,
            alarms=tuple(config.alarms),
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
    """The bag of one run of the node."""

    def __init__(self, config: MonitorConfig, spec: PolicySpec, say: Callable[[str], None]) -> None:
        self._say = say
        self._recorder: Recorder | None = None
        self._trouble = ""
        self._told = False
        if config.recording.enabled:
            self._recorder = Recorder(new_bag_folder(config.recording.folder), BagFacts(config=config, spec=spec))

    @property
    def trouble(self) -> str:
        """Why nothing is recorded, or that messages are lost; empty if all is well or no bag is wanted."""
        if self._trouble or self._recorder is None:
            return self._trouble
        status = self._recorder.status()
        return status.reason or (f"{status.dropped} messages dropped" if status.dropped else "")

    @property
    def status_text(self) -> str:
        """The bag's folder, or why there is none."""
        return self.trouble or (str(self._recorder.folder) if self._recorder is not None else "off")

    @property
    def dropped(self) -> int:
        """Messages that are not in the bag."""
        return 0 if self._recorder is None else self._recorder.status().dropped

    def start(self) -> None:
        """Open the bag. One that cannot be opened is told once."""
        if self._recorder is None:
            return
        try:
            self._recorder.open()
        except BagError as error:
            self._trouble, self._recorder = str(error), None
        self._tell()

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
        stamp = round(step.time * 1e9)
        recorder.record_step(step, stamp_ns=stamp)
        if not recorder.record_report(report, held, stamp_ns=stamp):
            self._tell()
        for alarm in report.alarms:
            if alarm.changed:
                recorder.record_alarm(alarm, report, stamp_ns=stamp)

    def close(self) -> None:
        """Write what waits and close the bag."""
        if self._recorder is not None:
            reason = self._recorder.close().reason
            if reason:
                self._say(f"bag: {reason}")

    def _tell(self) -> None:
        if self.trouble and not self._told:
            self._told = True
            self._say(f"recording is off: {self.trouble}")
