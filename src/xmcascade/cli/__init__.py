"""The command line: parse, call, print. Everything it can do, the library can do.

Answers go to standard output, as a table or with --json as one object; progress to standard error.
Exit codes: 0 done, 1 an error said in one line, 2 wrong usage, 70 a fault of ours, 130 interrupted.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.logging import RichHandler
from typer import Option

from xmcascade import __version__
from xmcascade.cli import answers, corpora, reports, tools, trees
from xmcascade.cli.answers import print_evaluation
from xmcascade.cli.common import err, group, out, said
from xmcascade.cli.exporting import export
from xmcascade.cli.reports import print_comparison
from xmcascade.cli.serving import serve
from xmcascade.cli.training import Stopped, is_interrupt, train
from xmcascade.errors import XmcError
from xmcascade.progress import set_console

__all__ = ["app", "main", "print_comparison", "print_evaluation"]

app = group(
    "Tag texts with the right few of up to millions of labels.",
    "xmcascade train products.csv --text title --labels tags --out my-model",
)
for command in (
    train, answers.predict, answers.evaluate, reports.compare, reports.inspect, export,
    serve, tools.models, tools.doctor,
):  # fmt: skip
    app.command()(command)
app.add_typer(corpora.app, name="corpus")
app.add_typer(trees.app, name="tree")
for own in (app, corpora.app, trees.app):
    for info in own.registered_commands:
        assert info.callback is not None
        told = inspect.cleandoc(info.callback.__doc__ or "")
        info.help = told.replace("Example:", "\b\nExample:")  # on one line, to be copied


def _version(shown: bool) -> None:
    if shown:
        out.print(f"xmcascade {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only warnings.")] = False,
) -> None:
    handler: logging.Handler = logging.StreamHandler(said)
    if err.is_terminal:
        handler = RichHandler(console=err, show_time=False, show_level=False, show_path=False, markup=False)
    log = logging.getLogger("xmcascade")
    log.handlers = [handler]
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    set_console(err if err.is_terminal and not quiet else None)


def main() -> None:
    """Run the command line; every refusal is one line on standard error."""
    code, interrupted = 70, "interrupted; nothing half-written is left"
    if sys.stdout is None:  # closed by who called
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the end
    try:
        code = app(standalone_mode=False) or 0  # Ctrl-C comes back as 130
        sys.stdout.flush()
    except XmcError as error:
        _complain(str(error))
        code = 1
    except Stopped as error:
        code, interrupted = 130, str(error)
    except SystemExit:  # who reads our output has seen enough
        _mute()
        code = 0
    except OSError as error:
        _mute()
        _complain(f"the output cannot be written ({error.strerror}). Remedy: check where it goes")
        code = 1
    except Exception as error:
        if is_interrupt(error):
            code = 130
        elif not hasattr(error, "exit_code"):
            if os.environ.get("XMCASCADE_DEBUG"):
                raise
            _complain(f"a fault of ours: {error!r}. Remedy: set XMCASCADE_DEBUG=1 and report it")
        else:  # wrong usage
            error.show()  # type: ignore[attr-defined]
            code = error.exit_code
    if code == 130:
        _complain(interrupted)
    sys.exit(code)


def _complain(message: str) -> None:
    err.print(f"xmcascade: {message}", markup=False, soft_wrap=True)


def _mute() -> None:
    """Nothing more can be written: let Python's own last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
