"""What stands on the Prometheus page."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitor.config import ExportConfig, default_alarms
from monitor.export import prometheus
from monitor.export.prometheus import Exporter, help_text, metric_name
from monitor.steps import AlarmPhase, AlarmState, Family, MetricInfo, Status, StepReport


def info(metric: str, variant: str, unit: str = "1", low: float = 0.0, high: float = 1.0) -> MetricInfo:
    return MetricInfo(
        id=metric, variant=variant, label=metric.upper(), family=Family.TOKEN, unit=unit, low=low, high=high, higher_means="less certain",
        formula="", source="",
    )  # fmt: skip


INFOS = (info("tb_entropy", "full"), info("tb_entropy", "window"), info("tcp_pi", "p", unit="m", high=math.inf))


def report(values: tuple[float, ...] = (0.25, 0.5, 0.001), statuses: tuple[Status, ...] = (Status.OK,) * 3, **more: object) -> StepReport:
    base = StepReport(
        time=1.0, episode_id="episode-7", step=3, verdict="accepted", infos=INFOS, values=np.array(values), statuses=np.array(statuses, np.uint8)
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def alarm(phase: AlarmPhase, *, changed: bool = True, name: str = "uncertain") -> AlarmState:
    return AlarmState(
        name=name, phase=phase, metric="tb_entropy/window", value=0.7, threshold=0.6, since=1.0, calibration="static", hold=False,
        text="said to the operator", changed=changed,
    )  # fmt: skip


@pytest.fixture
def exporter() -> Exporter:
    return Exporter(ExportConfig(robot="arm"), INFOS, "bundled", alarms=("uncertain",), counters=("gap",))


def sample(exporter: Exporter, name: str, **labels: str) -> float | None:
    return exporter.registry.get_sample_value(name, {"robot": "arm", "policy": "bundled", **labels})


GOLDEN = """\
# HELP vla_monitor_build_info Versions of the monitor and the policy.
# TYPE vla_monitor_build_info gauge
vla_monitor_build_info{policy="bundled",policy_version="0",robot="arm",version="1.2.3"} 1.0
# HELP vla_monitor_tb_entropy_ratio TB_ENTROPY. High: less certain. NaN: no statement, see vla_monitor_metric_status.
# TYPE vla_monitor_tb_entropy_ratio gauge
vla_monitor_tb_entropy_ratio{policy="bundled",robot="arm",variant="full"} 0.25
vla_monitor_tb_entropy_ratio{policy="bundled",robot="arm",variant="window"} NaN
# HELP vla_monitor_tcp_pi_meters TCP_PI, in m. High: less certain. NaN: no statement, see vla_monitor_metric_status.
# TYPE vla_monitor_tcp_pi_meters gauge
vla_monitor_tcp_pi_meters{policy="bundled",robot="arm",variant="p"} 0.001
# HELP vla_monitor_metric_status What the value of a metric is worth: 0 ok, 1 warming_up, 2 unavailable, 3 uninformative, 4 invalid, 5 stale.
# TYPE vla_monitor_metric_status gauge
vla_monitor_metric_status{metric="tb_entropy",policy="bundled",robot="arm",variant="full"} 0.0
vla_monitor_metric_status{metric="tb_entropy",policy="bundled",robot="arm",variant="window"} 1.0
vla_monitor_metric_status{metric="tcp_pi",policy="bundled",robot="arm",variant="p"} 0.0
# HELP vla_monitor_metrics_hidden Metrics left off this page, by export.metrics or export.max_series.
# TYPE vla_monitor_metrics_hidden gauge
vla_monitor_metrics_hidden{policy="bundled",robot="arm"} 0.0
# HELP vla_monitor_alarm_phase Phase of an alarm: 0 quiet, 1 pending, 2 active, 3 cooling_down.
# TYPE vla_monitor_alarm_phase gauge
vla_monitor_alarm_phase{alarm="uncertain",policy="bundled",robot="arm"} 2.0
# HELP vla_monitor_alarm_activations_total Times an alarm became active.
# TYPE vla_monitor_alarm_activations_total counter
vla_monitor_alarm_activations_total{alarm="uncertain",policy="bundled",robot="arm"} 1.0
# HELP vla_monitor_steps_total Steps given to the monitor, by what became of them.
# TYPE vla_monitor_steps_total counter
vla_monitor_steps_total{policy="bundled",robot="arm",verdict="accepted"} 1.0
vla_monitor_steps_total{policy="bundled",robot="arm",verdict="duplicate"} 0.0
vla_monitor_steps_total{policy="bundled",robot="arm",verdict="late"} 0.0
vla_monitor_steps_total{policy="bundled",robot="arm",verdict="failed"} 0.0
# HELP vla_monitor_events_total Running totals of the monitor and its recorder.
# TYPE vla_monitor_events_total counter
vla_monitor_events_total{event="dropped",policy="bundled",robot="arm"} 4.0
# HELP vla_monitor_last_step_timestamp_seconds Unix time of the last step; NaN before the first.
# TYPE vla_monitor_last_step_timestamp_seconds gauge
vla_monitor_last_step_timestamp_seconds{policy="bundled",robot="arm"} 1.7e+09
"""


def test_page_has_exactly_this_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus.time, "time", lambda: 1.7e9)
    exporter = Exporter(ExportConfig(robot="arm"), INFOS, "bundled", alarms=("uncertain",), tool_version="1.2.3")
    shown = report((0.25, math.nan, 0.001), (Status.OK, Status.WARMING_UP, Status.OK), alarms=(alarm(AlarmPhase.ACTIVE),))
    exporter.publish(shown, {"accepted": 1, "dropped": 4})
    text = exporter.render()[0].decode()
    assert text[: len(GOLDEN)] == GOLDEN


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0", "text/plain; version=1.0.0"])
def test_page_is_legal_text(exporter: Exporter, accept: str) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

    exporter.publish(report(), inference_seconds=0.03, update_seconds=0.0003)
    body, content_type = exporter.render(accept)
    parse = openmetrics if "openmetrics" in content_type else text_string_to_metric_families
    names = [family.name for family in parse(body.decode())]
    assert len(names) == len(set(names))
    assert all(name.startswith("vla_monitor_") for name in names)


def test_missing_value_is_nan(exporter: Exporter) -> None:
    exporter.publish(report((math.nan, 0.5, 0.001), (Status.WARMING_UP, Status.OK, Status.OK)))
    assert math.isnan(sample(exporter, "vla_monitor_tb_entropy_ratio", variant="full") or 0.0)


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_number_without_a_statement_is_nan(exporter: Exporter, status: Status) -> None:
    exporter.publish(report((0.0, 0.5, 0.0), (status, Status.OK, status)))
    assert math.isnan(sample(exporter, "vla_monitor_tb_entropy_ratio", variant="full") or 0.0)
    assert math.isnan(sample(exporter, "vla_monitor_tcp_pi_meters", variant="p") or 0.0)
    assert sample(exporter, "vla_monitor_tb_entropy_ratio", variant="window") == 0.5
    assert sample(exporter, "vla_monitor_metric_status", metric="tb_entropy", variant="full") == float(status)


def test_values_before_the_first_step_are_nan(exporter: Exporter) -> None:
    assert math.isnan(sample(exporter, "vla_monitor_tcp_pi_meters", variant="p") or 0.0)


def test_counters_exist_before_the_first_event(exporter: Exporter) -> None:
    assert sample(exporter, "vla_monitor_events_total", event="gap") == 0.0


def test_counters_are_read_when_somebody_asks(exporter: Exporter) -> None:
    living = {"gap": 1}
    exporter.publish(report(), living)
    living["gap"] = 5
    assert sample(exporter, "vla_monitor_events_total", event="gap") == 5.0


@pytest.mark.parametrize("verdict", ["accepted", "duplicate", "late", "failed"])
def test_steps_are_counted_by_verdict(exporter: Exporter, verdict: str) -> None:
    exporter.publish(report(verdict=verdict))
    assert sample(exporter, "vla_monitor_steps_total", verdict=verdict) == 1.0


def test_late_step_leaves_the_values_shown(exporter: Exporter) -> None:
    exporter.publish(report())
    exporter.publish(report((math.nan,) * 3, (Status.UNAVAILABLE,) * 3, verdict="late"))
    assert sample(exporter, "vla_monitor_tb_entropy_ratio", variant="full") == 0.25


def test_alarm_that_stays_active_counts_once(exporter: Exporter) -> None:
    exporter.publish(report(alarms=(alarm(AlarmPhase.ACTIVE),)))
    exporter.publish(report(alarms=(alarm(AlarmPhase.ACTIVE, changed=False),)))
    assert sample(exporter, "vla_monitor_alarm_activations_total", alarm="uncertain") == 1.0


@pytest.mark.parametrize("verdict", ["duplicate", "late", "failed"])
def test_alarm_stays_active_over_a_step_that_is_not_accepted(exporter: Exporter, verdict: str) -> None:
    exporter.publish(report(alarms=(alarm(AlarmPhase.ACTIVE),)))
    exporter.publish(report((math.nan,) * 3, (Status.UNAVAILABLE,) * 3, verdict=verdict, alarms=(alarm(AlarmPhase.ACTIVE, changed=False),)))
    assert sample(exporter, "vla_monitor_alarm_phase", alarm="uncertain") == float(AlarmPhase.ACTIVE)
    assert sample(exporter, "vla_monitor_alarm_activations_total", alarm="uncertain") == 1.0


def test_alarm_that_is_over_with_its_episode_and_back_at_once_is_active(exporter: Exporter) -> None:
    exporter.publish(report(alarms=(alarm(AlarmPhase.ACTIVE),)))
    exporter.publish(report(alarms=(alarm(AlarmPhase.QUIET), alarm(AlarmPhase.ACTIVE))))
    assert sample(exporter, "vla_monitor_alarm_phase", alarm="uncertain") == float(AlarmPhase.ACTIVE)
    assert sample(exporter, "vla_monitor_alarm_activations_total", alarm="uncertain") == 2.0


def test_alarm_that_a_report_does_not_name_is_quiet(exporter: Exporter) -> None:
    exporter.publish(report(alarms=(alarm(AlarmPhase.ACTIVE),)))
    exporter.publish(report())
    assert sample(exporter, "vla_monitor_alarm_phase", alarm="uncertain") == float(AlarmPhase.QUIET)


def test_inference_time_falls_into_its_bucket(exporter: Exporter) -> None:
    exporter.publish(report(), inference_seconds=0.03)
    below, above = (sample(exporter, "vla_monitor_inference_seconds_bucket", le=bound) for bound in ("0.02", "0.05"))
    assert (below, above) == (0.0, 1.0)


def test_step_without_inference_is_not_observed(exporter: Exporter) -> None:
    exporter.publish(report(), inference_seconds=None)
    assert sample(exporter, "vla_monitor_inference_seconds_count") == 0.0


def test_held_steps_are_counted(exporter: Exporter) -> None:
    exporter.publish(report(), held=True)
    exporter.publish(report(), held=False)
    assert (sample(exporter, "vla_monitor_gate_held_steps_total"), sample(exporter, "vla_monitor_gate_holding")) == (1.0, 0.0)


def test_page_counts_its_own_scrapes(exporter: Exporter) -> None:
    exporter.render()
    assert sample(exporter, "vla_monitor_exporter_scrapes_total") == 1.0


def test_no_label_holds_step_episode_or_text(exporter: Exporter) -> None:
    exporter.publish(report(alarms=(alarm(AlarmPhase.ACTIVE),)))
    text = exporter.render()[0].decode()
    assert "episode-7" not in text
    assert "said to the operator" not in text


def test_two_exporters_in_one_process_are_told_apart_by_robot() -> None:
    left, right = (Exporter(ExportConfig(robot=robot), INFOS, "bundled") for robot in ("left", "right"))
    labels = [{s.labels["robot"] for family in e.registry.collect() for s in family.samples} for e in (left, right)]
    assert labels == [{"left"}, {"right"}]


def test_nothing_enters_the_global_registry(exporter: Exporter) -> None:
    from prometheus_client import REGISTRY

    assert not [family for family in REGISTRY.collect() if family.name.startswith("vla_monitor")]


def test_default_setup_fits_the_page() -> None:
    from monitor.cli.catalogue import generous_spec
    from monitor.engine import Monitor

    monitor = Monitor(generous_spec())
    exporter = Exporter(monitor.config.export, monitor.infos, "bundled", alarms=tuple(monitor.config.alarms))
    hidden = exporter.registry.get_sample_value("vla_monitor_metrics_hidden", {"robot": "robot", "policy": "bundled"})
    assert (exporter.series() <= monitor.config.export.max_series, hidden) == (True, 0.0)


def test_metrics_beyond_the_bound_are_left_off_and_counted() -> None:
    many = tuple(info(f"m{i}", "full") for i in range(300))
    exporter = Exporter(ExportConfig(robot="arm", max_series=200), many, "bundled", alarms=tuple(default_alarms()))
    assert exporter.series() <= 200
    assert (sample(exporter, "vla_monitor_metrics_hidden") or 0.0) > 200


def test_config_chooses_the_metrics() -> None:
    exporter = Exporter(ExportConfig(robot="arm", metrics=("tcp_*",)), INFOS, "bundled")
    names = {family.name for family in exporter.registry.collect()}
    assert "vla_monitor_tcp_pi_meters" in names
    assert "vla_monitor_tb_entropy_ratio" not in names


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (info("tb_entropy", "full"), "tb_entropy_ratio"),
        (info("tcp_pi", "o", unit="rad"), "tcp_pi_radians"),
        (info("ti", "full", unit="m/s^3", high=math.inf), "ti_meters_per_second_cubed"),
        (info("inference_seconds", "full", unit="s"), "inference_seconds"),
        (info("frozen", "flag"), "frozen"),
        (info("odd", "full", unit="m*rad/s", high=math.inf), "odd_m_rad_s"),
    ],
)
def test_name_ends_in_the_base_unit(metric: MetricInfo, expected: str) -> None:
    assert metric_name(metric) == expected


def test_help_says_what_high_means() -> None:
    assert help_text(info("ti", "full", unit="m/s^3")).startswith("TI, in m/s^3. High: less certain.")
