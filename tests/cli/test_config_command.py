"""`vla-monitor config`."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.cli.app import main
from monitor.config import load_config


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "monitor.yaml"
    path.write_text("window: 12\nalarms:\n  uncertain: {threshold: 0.7}\n  leak: null\nexport:\n  metrics: ['tb_*']\n")
    return path


def test_good_file_is_good(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", str(file)]) == 0
    assert "good" in capsys.readouterr().out


def test_printed_configuration_can_be_used_again(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", str(file), "--print"])
    again = tmp_path / "again.yaml"
    again.write_text(capsys.readouterr().out)
    assert load_config(again) == load_config(file)


def test_keys_of_the_file_are_marked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", str(file), "--print"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].strip() for line in lines if "[file]" in line and not line.startswith("#")] == [
        "window",
        "leak",
        "threshold",
        "metrics",
    ]


def test_misspelt_key_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("windo: 8\n")
    assert main(["config", str(path)]) == 2
    assert "did you mean 'window'" in capsys.readouterr().err
