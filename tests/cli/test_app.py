"""The command line as a whole: help, version, errors, exit codes, JSON."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from monitor.cli import output
from monitor.cli.app import app, main
from monitor.errors import ConfigError

COMMANDS = ("demo", "run", "up", "replay", "calibrate", "evaluate", "metrics", "doctor", "config")


def test_every_command_of_the_design_is_there() -> None:
    assert set(typer.main.get_command(app).commands) == set(COMMANDS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"Example: vla-monitor {command}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vla-monitor {output.tool_version()}\n"


@pytest.mark.parametrize("words", [["nonsense"], ["config", "--nonsense"], ["replay"]])
def test_bad_usage_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err


def test_error_is_one_text_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "no.yaml"
    assert main(["config", str(missing)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error: {missing}: cannot be read (No such file or directory); give the path of a YAML file\n"


def test_debug_shows_the_traceback_and_may_stand_behind_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", str(tmp_path / "no.yaml"), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_unexpected_error_asks_for_a_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(path: object) -> None:
        raise ZeroDivisionError("nobody thought of that")

    monkeypatch.setattr("monitor.config.load_config", broken)
    assert main(["config"]) == 70
    assert "fault of vla-monitor" in capsys.readouterr().err


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("monitor.config.load_config", interrupted)
    assert main(["config"]) == 130


@pytest.mark.parametrize("words", [["config", "--json"], ["metrics", "--json"], ["doctor", "--json"]])
def test_json_is_one_object_with_its_schema(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(words)
    told = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not legal JSON"))
    assert (told["schema"], told["schema_version"]) == (f"vla-monitor/{words[0]}", 1)


def test_json_says_null_for_nan(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_json("x", {"value": float("nan"), "inner": [{"high": float("inf")}]})
    told = json.loads(capsys.readouterr().out)
    assert (told["value"], told["inner"]) == (None, [{"high": None}])


def test_help_imports_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "rclpy", "mujoco", "rosbags", "prometheus_client")
    code = f"import sys; from monitor.cli.app import main; main(['--help']); sys.stderr.write(' '.join(m for m in {heavy} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_absent_part_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "rclpy", None)
    for name in [name for name in sys.modules if name.startswith("monitor.ros.")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["run"]) == 2
    assert "pip install 'vla-monitor[ros]'" in capsys.readouterr().err


def test_words_of_the_launch_file_are_understood() -> None:
    from monitor.cli.arguments import launch_options

    assert launch_options(["sim:=false", "port=0", "bags:=a=b"]) == {"sim": "false", "port": "0", "bags": "a=b"}


def test_word_without_value_is_refused() -> None:
    from monitor.cli.arguments import launch_options

    with pytest.raises(ConfigError, match="expected NAME:=VALUE"):
        launch_options(["sim"])


def test_texts_for_the_node_are_quoted() -> None:
    import yaml

    from monitor.cli.arguments import node_arguments

    words = node_arguments(Path("it's: mine.yaml"), "123", ["export.port:=9500"])
    assert words[::2] == ["--ros-args", "config:='it''s: mine.yaml'", "policy.name:='123'", "export.port:=9500"]
    assert yaml.safe_load(words[2].partition(":=")[2]) == "it's: mine.yaml"


def started_as(path: Path, monkeypatch: pytest.MonkeyPatch, *, on_path: bool) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.setenv("PATH", str(path.parent) if on_path else "/nowhere")
    return output.program()


def test_program_is_told_by_the_path_it_was_started_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert started_as(Path(".venv/bin/vla-monitor"), monkeypatch, on_path=False) == ".venv/bin/vla-monitor"


def test_program_on_the_path_is_told_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert started_as(tmp_path / "bin" / "vla-monitor", monkeypatch, on_path=True) == "vla-monitor"


def test_path_with_a_blank_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert started_as(tmp_path / "my env" / "vla-monitor", monkeypatch, on_path=False) == f"'{tmp_path}/my env/vla-monitor'"


def test_module_is_told_as_it_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/monitor/cli/app.py"])
    assert output.program() == f"{sys.executable} -m monitor.cli.app"


def test_doctor_finds_a_taken_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        (tmp_path / "config.yaml").write_text(f"export: {{port: {port}}}\n")
        main(["doctor", "--config", str(tmp_path / "config.yaml"), "--json"])
    found = next(check for check in json.loads(capsys.readouterr().out)["checks"] if check["part"] == f"port 127.0.0.1:{port}")
    assert (found["state"], found["found"]) == ("warning", "in use by another process")
