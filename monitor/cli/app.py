"""`vla-monitor`: puts the commands together and turns errors into one text and an exit code.

0 good, 1 found a problem, 2 bad usage or bad input, 70 a fault of vla-monitor itself, 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from monitor.cli import calibrate, config, demo, doctor, evaluate, metrics, output, replay, run, up
from monitor.errors import MonitorError

BAD_INPUT, FAULT, INTERRUPTED = 2, 70, 130  # 70: EX_SOFTWARE of sysexits.h
_GENERAL = ("--quiet", "--verbose", "--debug")

app = typer.Typer(
    name=output.NAME,
    help="Says how sure a robot policy is and how steady the robot moves: live, recorded, and afterwards.",
    epilog="Example: vla-monitor demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for module in (demo, run, up, replay, calibrate, evaluate, metrics, doctor, config):
    name = module.__name__.rpartition(".")[2]
    app.command(name, help=getattr(module, "HELP", None), epilog=f"Example: {module.EXAMPLE}")(module.command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{output.NAME} {output.tool_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Errors only on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="More log lines on stderr.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="All log lines, and the traceback of an error.")] = False,
) -> None:
    output.set_up(output.Flags(quiet, verbose, debug))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. `argv` is without the program's name."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        app(_general_first(words), prog_name=output.NAME)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except MonitorError as error:
        _say(error, str(error))
        return BAD_INPUT
    except Exception as error:
        _say(error, f"{type(error).__name__}: {error}\nThis is a fault of vla-monitor: run again with --debug and report the traceback.")
        return FAULT
    return 0


def _say(error: Exception, text: str) -> None:
    if output.flags.debug:
        traceback.print_exception(error)
    output.say_error(text)


def _general_first(words: list[str]) -> list[str]:
    """Let --quiet, --verbose and --debug stand behind the command too."""
    end = words.index("--") if "--" in words else len(words)
    general = [word for word in words[:end] if word in _GENERAL]
    return general + [word for word in words[:end] if word not in _GENERAL] + words[end:]


if __name__ == "__main__":
    sys.exit(main())
