"""The page and its port: taken, freed, killed, shared (case D12)."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monitor.config import ExportConfig
from monitor.export import page
from monitor.export.page import fetch
from monitor.export.prometheus import Exporter

HOLDER = Path(__file__).with_name("holder.py")
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def child() -> Iterator[Start]:
    """Start children that serve a page; the first line says how it went."""
    started: list[subprocess.Popen[str]] = []

    def start(port: int, robot: str = "other") -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, str(HOLDER), str(port), robot], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def answer(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stdout is not None
    state, port = process.stdout.readline().split()
    return state, int(port)


@pytest.fixture
def make() -> Iterator[Callable[..., Exporter]]:
    made: list[Exporter] = []

    def start(port: int, robot: str = "arm") -> Exporter:
        exporter = Exporter(ExportConfig(port=port, robot=robot), (), "bundled")
        made.append(exporter)
        exporter.start()
        return exporter

    yield start
    for exporter in made:
        exporter.close()


Make = Callable[..., Exporter]


def test_port_zero_takes_a_free_one_and_tells(make: Make) -> None:
    exporter = make(0)
    assert exporter.port is not None
    assert "vla_monitor_build_info" in fetch(f"http://127.0.0.1:{exporter.port}/metrics")


def test_taken_port_is_said_once(make: Make, child: Start, caplog: pytest.LogCaptureFixture) -> None:
    _, port = answer(child(0))
    with caplog.at_level(logging.WARNING):
        make(port)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [f"exporter off: 127.0.0.1:{port} in use by another process"]


def test_taken_port_gives_state_off_with_reason(make: Make, child: Start) -> None:
    _, port = answer(child(0))
    exporter = make(port)
    assert exporter.status() == ("off", f"127.0.0.1:{port} in use by another process", None)


def test_second_process_on_the_same_port_runs_on(child: Start) -> None:
    _, port = answer(child(0))
    assert answer(child(port)) == ("off", 0)


def test_page_comes_up_when_the_holder_leaves(make: Make, child: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(page, "LAST_RETRY_S", 0.1)
    holder = child(0)
    _, port = answer(holder)
    exporter = make(port)
    holder.kill()
    holder.wait()
    assert exporter.wait_serving(30)
    assert 'robot="arm"' in fetch(f"http://127.0.0.1:{port}/metrics")


def test_serves_again_at_once_after_each_of_ten_kills(child: Start) -> None:
    port, states = 0, []
    for _ in range(10):
        process = child(port)
        state, port = answer(process)
        fetch(f"http://127.0.0.1:{port}/metrics")
        process.kill()
        process.wait()
        states.append(state)
    assert states == ["serving"] * 10


def test_two_exporters_in_one_process_both_serve(make: Make) -> None:
    left, right = make(0, "left"), make(0, "right")
    texts = [fetch(f"http://127.0.0.1:{exporter.port}/metrics") for exporter in (left, right)]
    assert [('robot="left"' in text, 'robot="right"' in text) for text in texts] == [(True, False), (False, True)]


def test_close_frees_the_port(make: Make) -> None:
    first = make(0)
    port = first.port
    assert port is not None
    first.close()
    assert make(port).status().state == "serving"


def test_close_while_waiting_for_the_port_ends_the_thread(make: Make, child: Start) -> None:
    _, port = answer(child(0))
    exporter = make(port)
    exporter.close()
    assert exporter.status().state == "closed"


def test_close_before_start_is_harmless() -> None:
    Exporter(ExportConfig(), (), "bundled").close()


def test_disabled_exporter_opens_nothing() -> None:
    exporter = Exporter(ExportConfig(enabled=False), (), "bundled")
    exporter.start()
    assert (exporter.status().state, exporter.port) == ("disabled", None)


def test_address_that_is_not_ours_turns_the_page_off() -> None:
    with Exporter(ExportConfig(address="192.0.2.1", port=0), (), "bundled") as exporter:
        assert exporter.status().state == "off"


def test_scraper_that_says_nothing_does_not_stop_others(make: Make) -> None:
    exporter = make(0)
    with socket.create_connection(("127.0.0.1", exporter.port or 0)):
        assert fetch(f"http://127.0.0.1:{exporter.port}/metrics")


def test_too_many_scrapers_are_refused_and_leave_room_again(make: Make) -> None:
    exporter = make(0)
    silent = [socket.create_connection(("127.0.0.1", exporter.port or 0)) for _ in range(page.MOST_CLIENTS)]
    with socket.create_connection(("127.0.0.1", exporter.port or 0), timeout=10) as refused:
        assert refused.recv(1) == b""
    for connection in silent:
        connection.close()
    url = f"http://127.0.0.1:{exporter.port}/metrics"
    assert any(_answers(url) for _ in range(1000))


def _answers(url: str) -> bool:
    try:
        return bool(fetch(url))
    except OSError:
        return False


def test_other_paths_are_not_found(make: Make) -> None:
    exporter = make(0)
    with pytest.raises(OSError, match="404"):
        fetch(f"http://127.0.0.1:{exporter.port}/secrets")


def test_refusal_tells_why_a_page_cannot_be_served() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert page.refusal("127.0.0.1", port) == "in use by another process"
    assert page.refusal("127.0.0.1", port) == ""
    assert page.refusal("192.0.2.1", 0) == "Cannot assign requested address"
