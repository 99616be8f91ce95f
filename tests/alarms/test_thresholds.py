"""thresholds.yaml: written, read, refused, applied."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.alarms.thresholds import Counts, Identity, MetricThreshold, Thresholds, alarm_name, applied, read_thresholds, write_thresholds
from monitor.config import CalibrationConfig, MonitorConfig, VoteConfig, parse_config
from monitor.engine import Monitor
from monitor.errors import ConfigError
from monitor.policy import PolicySpec
from monitor.steps import AlarmPhase, Family, PolicyStep

SPEC = PolicySpec(name="p", action_low=(-1.0,) * 7, action_high=(1.0,) * 7)


def thresholds(config: MonitorConfig | None = None, **changes: Any) -> Thresholds:
    facts: dict[str, Any] = {
        "identity": Identity(policy="p", config=(config or MonitorConfig()).identity(SPEC), tasks=("pick",)),
        "alpha": 0.1,
        "method": "constant",
        "counts": Counts(episodes=12, successes=10, failures=2, unknown=0),
        "metrics": (
            MetricThreshold(metric="a_ai/full", label="A-AI", family=Family.ACTION, threshold=0.1, joint=0.2, centre=0.05, weight=0.5, runs=10),
        ),
    }
    return Thresholds(**{**facts, **changes})


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., MonitorConfig]:
    """A config that names a written file."""

    def make(found: Thresholds, on_mismatch: Any = "refuse", **settings: Any) -> MonitorConfig:
        write_thresholds(found, tmp_path / "thresholds.yaml")
        return MonitorConfig(calibration=CalibrationConfig(thresholds=tmp_path / "thresholds.yaml", on_mismatch=on_mismatch), **settings)

    return make


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    band = MetricThreshold(metric="ti/full", label="TI", family=Family.MOTION, threshold=(1.0, 2.0), centre=(0.5, 0.6), runs=9)
    found = thresholds(metrics=(*thresholds().metrics, band), seen=("bag:e1",))
    write_thresholds(found, tmp_path / "t.yaml")
    assert read_thresholds(tmp_path / "t.yaml") == found


def test_nothing_is_left_beside_a_written_file(tmp_path: Path) -> None:
    write_thresholds(thresholds(), tmp_path / "t.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["t.yaml"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "t.yaml: file: "),
        ("a: [", "is not YAML"),
        ("schema_version: 9", "schema_version"),
        ("unknown: 1", "unknown: Extra inputs"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_thresholds(tmp_path / "t.yaml")


def test_a_missing_file_is_refused_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="make it with `vla-monitor calibrate`"):
        read_thresholds(tmp_path / "t.yaml")


@pytest.mark.parametrize("value", [".inf", ".nan", "[1.0, .inf]"])
def test_an_infinite_threshold_is_refused(tmp_path: Path, value: str) -> None:
    write_thresholds(thresholds(), tmp_path / "t.yaml")
    text = (tmp_path / "t.yaml").read_text().replace("threshold: 0.1", f"threshold: {value}")
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(ConfigError, match="is no threshold; calibrate with more successful runs"):
        read_thresholds(tmp_path / "t.yaml")


def test_a_metric_cannot_occur_twice() -> None:
    with pytest.raises(ValueError, match="a_ai/full: a metric occurs more than once"):
        thresholds(metrics=thresholds().metrics * 2)


def test_the_id_does_not_depend_on_the_day() -> None:
    assert thresholds(date="2026-01-01").id == thresholds(date="2026-12-31").id


def test_the_id_changes_with_the_numbers() -> None:
    assert thresholds().id != thresholds(alpha=0.2).id


def test_a_config_without_a_file_stays_as_it_is() -> None:
    config = MonitorConfig()
    assert applied(config, SPEC) is config


def test_a_vote_of_one_voice_takes_the_joint_threshold(configured: Any) -> None:
    assert applied(configured(thresholds()), SPEC).alarms["calibrated_a_ai_full"].threshold == 0.2


def test_other_votes_take_each_metric_s_own(configured: Any) -> None:
    config = configured(thresholds(), vote=VoteConfig(mode="weighted"))
    assert applied(config, SPEC).alarms["calibrated_a_ai_full"].threshold == 0.1


def test_learned_weights_are_taken_unless_others_are_given(configured: Any) -> None:
    assert applied(configured(thresholds()), SPEC).vote.weights == {"a_ai/full": 0.5}
    given = configured(thresholds(), vote=VoteConfig(weights={"a_ai/full": 2.0}))
    assert applied(given, SPEC).vote.weights == {"a_ai/full": 2.0}


def test_the_alarm_names_its_calibration(configured: Any) -> None:
    found = thresholds()
    text = applied(configured(found), SPEC).alarms["calibrated_a_ai_full"].calibration
    assert text == f"conformal {found.id}: alpha 0.1, 10 runs of p"


def test_a_rough_default_alarm_gives_way_and_a_changed_one_stays(configured: Any) -> None:
    assert "shaky_action" not in applied(configured(thresholds()), SPEC).alarms
    changed = parse_config({"alarms": {"shaky_action": {"threshold": 0.7}}}, "test").alarms
    assert "shaky_action" in applied(configured(thresholds(), alarms=changed), SPEC).alarms


def test_an_applied_config_needs_the_file_no_more(configured: Any) -> None:
    config = applied(configured(thresholds()), SPEC)
    config_again = parse_config(config.model_dump(mode="json"), "bag")
    assert config_again.calibration.thresholds is None
    assert config_again.alarms["calibrated_a_ai_full"] == config.alarms["calibrated_a_ai_full"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"policy": "q"}, "policy 'p' instead of 'q'"),
        ({"version": "2"}, "version '0' instead of '2'"),
        ({"config": "other"}, "config .* instead of 'other'"),
        ({"logits_source": "filtered"}, "logits_source '' instead of 'filtered'"),
        ({"classes": 256}, "classes 0 instead of 256"),
    ],
)
def test_thresholds_of_something_else_are_refused(configured: Any, changed: dict[str, Any], told: str) -> None:
    other = thresholds().identity.model_copy(update=changed)
    with pytest.raises(ConfigError, match=told):
        applied(configured(thresholds(identity=other)), SPEC)


def test_with_warn_they_are_taken_and_every_alarm_says_so(configured: Any, caplog: pytest.LogCaptureFixture) -> None:
    config = configured(thresholds(identity=Identity(policy="q")), on_mismatch="warn")
    assert "MADE FOR SOMETHING ELSE" in applied(config, SPEC).alarms["calibrated_a_ai_full"].calibration
    assert "does not hold" in caplog.text


def test_the_live_monitor_raises_the_calibrated_alarm(configured: Any) -> None:
    monitor = Monitor(SPEC, applied(configured(thresholds()), SPEC))
    signs = np.where(np.arange(12) % 2 == 0, 1.0, -1.0)
    reports = [monitor.update(PolicyStep(time=0.1 * i, episode_id="e", step=i, action=np.full(7, sign))) for i, sign in enumerate(signs)]
    (state,) = [alarm for alarm in reports[-1].alarms if alarm.name == "likely_failure"]
    assert (state.phase, state.metric, state.threshold) == (AlarmPhase.ACTIVE, "a_ai/full", 0.2)


def test_names_of_alarms_hold_no_dots_and_slashes() -> None:
    assert alarm_name("a.b/c") == "calibrated_a_b_c"
