"""MonitorConfig: files in, clear errors out."""

from pathlib import Path

import pytest
import yaml

from monitor.config import MonitorConfig, load_config, parse_config
from monitor.errors import ConfigError
from monitor.policy import PolicySpec


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "monitor.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_need_no_file() -> None:
    assert load_config(None) == MonitorConfig()


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "")) == MonitorConfig()


def test_dumped_config_loads_to_the_same(tmp_path: Path) -> None:
    config = parse_config({"window": 12, "export": {"port": 0}}, "here")
    assert load_config(written(tmp_path, yaml.safe_dump(config.model_dump(mode="json")))) == config


@pytest.mark.parametrize(
    ("text", "place", "near"),
    [
        ("windw: 9", "windw", "'window'"),
        ("export: {prt: 1}", "export.prt", "'port'"),
        ("alarms: {uncertain: {treshold: 1.0}}", "alarms.uncertain.treshold", "'threshold'"),
    ],
)
def test_an_unknown_key_names_the_file_the_key_and_the_nearest_known(tmp_path: Path, text: str, place: str, near: str) -> None:
    with pytest.raises(ConfigError, match=rf"monitor\.yaml: {place}.*{near}"):
        load_config(written(tmp_path, text))


def test_a_wrong_value_names_the_key_and_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"window.*greater than or equal to 4.*found 2"):
        load_config(written(tmp_path, "window: 2"))


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)window.*gate\.mode"):
        load_config(written(tmp_path, "window: 2\ngate: {mode: stop}"))


def test_a_list_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a mapping"):
        load_config(written(tmp_path, "- window"))


def test_broken_yaml_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not YAML"):
        load_config(written(tmp_path, "window: [1"))


def test_yaml_cannot_run_code(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not YAML"):
        load_config(written(tmp_path, "window: !!python/object/apply:os.system ['true']"))


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        load_config(tmp_path / "nowhere.yaml")


def test_alarms_in_a_file_are_laid_over_the_defaults() -> None:
    config = parse_config({"alarms": {"uncertain": {"threshold": 0.9}}}, "here")
    assert config.alarms["uncertain"].threshold == 0.9
    assert config.alarms["uncertain"].metric == "tb_entropy/window"
    assert "frozen" in config.alarms


def test_null_removes_a_default_alarm() -> None:
    assert "leak" not in parse_config({"alarms": {"leak": None}}, "here").alarms


def test_identity_changes_with_what_changes_the_numbers_and_with_nothing_else() -> None:
    spec = PolicySpec(name="p", action_low=(-1.0,) * 7, action_high=(1.0,) * 7)
    base = MonitorConfig().identity(spec)
    assert parse_config({"window": 9}, "here").identity(spec) != base
    for change in ({"control_hz": 5.0}, {"action_low": (-2.0,) * 7}, {"logits_source": "filtered"}):
        assert MonitorConfig().identity(spec.model_copy(update=change)) != base
    assert parse_config({"export": {"port": 1}}, "here").identity(spec) == base
    assert MonitorConfig().identity(spec.model_copy(update={"version": "2"})) == base
