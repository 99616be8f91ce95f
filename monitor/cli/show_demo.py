"""What `vla-monitor demo` shows: the live table on stderr, the results on stdout."""

from __future__ import annotations

import shlex
import signal
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from monitor.cli import output
from monitor.cli.bag_report import BagReport, bag_report
from monitor.cli.catalogue import installed_infos
from monitor.config import MonitorConfig
from monitor.errors import BagError
from monitor.export.pictures import Pictures, as_png
from monitor.export.terminal import LiveState, LiveView, closing_table
from monitor.messages import AlarmRecord, EpisodeRecord, ReportRecord
from monitor.ros.demo import DemoOptions, DemoResult, Record, page_url, run_demo
from monitor.steps import PolicyStep

PAGE_NAMES = (
    "vla_monitor_tb_entropy_ratio{",
    "vla_monitor_a_ai_ratio{",
    "vla_monitor_metric_status{",
    "vla_monitor_alarm_phase{",
    "vla_monitor_steps_total{",
    "vla_monitor_inference_seconds_count{",
)
FAILED, INTERRUPTED = 1, 130


def show_demo(options: DemoOptions, *, live: bool, as_json: bool, pictures: Path | None = None) -> int:
    """Run the demo and print what came of it. Returns the exit code."""
    remarks = output.err()
    remarks.print(f"episodes: {', '.join(options.episodes)}", markup=False)
    remarks.print(f"metrics page: {page_url(options.port)}   ROS_DOMAIN_ID={options.domain_id}   Ctrl-C stops everything and keeps the bag")
    album = None if pictures is None else Pictures()
    result = _run(options, remarks, live=live, album=album)
    if album is not None and pictures is not None:
        saved, trouble = as_png(album.save(pictures, page_excerpt(result.page or "", most=4), page_url(options.port)))
        for path in saved:
            remarks.print(f"picture: {path}", markup=False)
        if trouble:
            remarks.print(trouble, markup=False)
    report, trouble = _read(result.bag)
    if as_json:
        output.emit_json("demo", _fields(options, result, report))
    else:
        _print(options, result, report)
    if trouble:
        output.say_error(trouble)
    for name, code in result.exit_codes.items():
        if code not in (0, -signal.SIGTERM):  # the latter: stopped by us, before it was ready
            output.say_error(f"{name} ended with exit code {code}; run again with --verbose to see its lines")
    if result.interrupted:
        return INTERRUPTED
    return 0 if report is not None and report.result.good and result.good else FAILED


def _run(options: DemoOptions, remarks: Console, *, live: bool, album: Pictures | None) -> DemoResult:
    config = MonitorConfig()
    state = LiveState(infos=installed_infos(config), alarms=config.alarms, policy=options.policy or config.policy.name, robot=options.robot)
    state.recording, state.exporter = str(options.out), page_url(options.port)
    view = LiveView(state, remarks) if live else None

    def on_record(record: Record | None) -> None:
        if isinstance(record, ReportRecord):
            state.add(record)
            if album is not None:
                album.look(state)
        elif isinstance(record, PolicyStep):
            state.add_step(record)
        elif isinstance(record, AlarmRecord):
            state.add_alarm(record)
        elif isinstance(record, EpisodeRecord):
            state.add_episode(record)
        elif view is not None:
            view.refresh()

    with view or nullcontext():
        return run_demo(
            options, on_record, say=lambda line: remarks.print(line, markup=False), quiet=not (output.flags.verbose or output.flags.debug)
        )


def _read(bag: Path | None) -> tuple[BagReport | None, str]:
    """Replay the bag; the second is why that could not be done."""
    if bag is None:
        return None, "no bag was written"
    try:
        return bag_report(bag), ""
    except BagError as error:
        return None, str(error)


def _print(options: DemoOptions, result: DemoResult, report: BagReport | None) -> None:
    out = output.out()
    if result.page is not None:
        out.print(f"\n{page_url(options.port)} during the run, in part:", style="bold")
        for line in page_excerpt(result.page):
            out.print(f"  {line}", markup=False)
    if report is not None:
        out.print()
        out.print(closing_table(report.rows, report.result.infos))
        out.print(f"\n{report.result.verdict}", style="green" if report.result.good else "red", markup=False)
    if result.bag is not None:
        out.print(f"bag: {result.bag}", markup=False, soft_wrap=True)
        out.print("\nnext:", style="bold")
        for words in (f"replay {shlex.quote(str(result.bag))}", "metrics", "config --print", "up"):
            out.print(f"  {output.program()} {words}", markup=False, soft_wrap=True)


def page_excerpt(page: str, most: int = 2) -> list[str]:
    """A few lines of the metrics page: the first series of some names."""
    lines = page.splitlines()
    return [line for name in PAGE_NAMES for line in [line for line in lines if line.startswith(name)][:most]]


def _fields(options: DemoOptions, result: DemoResult, report: BagReport | None) -> dict[str, object]:
    return {
        "episodes_asked": list(options.episodes),
        "page_url": page_url(options.port),
        "page_seen": result.page is not None,
        "ros_domain_id": options.domain_id,
        "bag": None if result.bag is None else str(result.bag),
        "exit_codes": result.exit_codes,
        "interrupted": result.interrupted,
        "reports_seen": result.reports,
        "replay": None if report is None else report.fields(),
    }
