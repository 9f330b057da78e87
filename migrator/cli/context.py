"""What every verb shares: reading the site file, running to the end, and how an error reaches a person."""

import asyncio
import functools
import json
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from migrator import __version__
from migrator.bootstrap import let_no_thread_hold
from migrator.cli.invocation import Invocation
from migrator.config.load import load_site
from migrator.config.site import Site
from migrator.domain.errors import ExitCode, Interrupted, MigratorError

Result = TypeVar("Result")


def describe_error(error: MigratorError) -> str:
    """An error for people: what happened, the usual cause, what to do next."""
    lines = [f"migrator: {error.message}"]
    if error.cause:
        lines.append(f"  cause: {error.cause}")
    if error.hint:
        lines.append(f"  next:  {error.hint}")
    return "\n".join(lines)


def print_error(error: MigratorError, *, as_json: bool) -> None:
    """Write an error to standard error, or as JSON to standard output."""
    if as_json:
        document = {
            "error": {"message": error.message, "cause": error.cause, "hint": error.hint},
            "exit_code": int(error.exit_code),
        }
        click.echo(json.dumps(document, indent=1))
    else:
        click.echo(describe_error(error), err=True)


def run_to_end(work: Coroutine[Any, Any, Result], *, when_interrupted: str) -> Result:
    """Run one stage. SIGINT and SIGTERM cancel it once; it stops cleanly, and Interrupted is raised.

    Further signals are taken and change nothing: what is being ended needs its few seconds.
    """

    async def supervised() -> Result:
        loop = asyncio.get_running_loop()
        let_no_thread_hold(loop)
        task = asyncio.ensure_future(work)
        stopping = False

        def stop() -> None:
            nonlocal stopping
            if not stopping:
                stopping = True
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted("interrupted", hint=when_interrupted) from None

    return asyncio.run(supervised())


def _crash_report(site_file: Path) -> str:
    """Keep the traceback of a defect where its author can be sent it; the user sees one sentence."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="migrator-crash-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as report:
        report.write(f"migrator {__version__}\nargv: {sys.argv!r}\nsite: {site_file}\n\n{traceback.format_exc()}")
        return report.name


def verb(function: Callable[..., ExitCode]) -> Callable[..., None]:
    """Make a verb of a function that takes the invocation and its options and returns an exit code.

    Adds `--json`, turns errors into words and exit codes, and lets no traceback reach a user.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @click.pass_obj
    @functools.wraps(function)
    def command(invocation: Invocation, /, *, as_json: bool, **options: object) -> None:
        invocation.as_json = as_json
        try:
            code = function(invocation, **options)
        except MigratorError as error:
            print_error(error, as_json=as_json)
            code = error.exit_code
        except KeyboardInterrupt:
            print_error(Interrupted("interrupted"), as_json=as_json)
            code = ExitCode.INTERRUPTED
        except BrokenPipeError:
            code = ExitCode.FAILED
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except Exception:  # noqa: BLE001 - the one place where a defect is turned into words
            report = _crash_report(invocation.site_file)
            print_error(
                MigratorError(
                    "a defect of migrator itself; nothing that was recorded is lost",
                    cause=f"the details are in {report}",
                    hint="run the same command again; if it happens again, send that file to the maintainers",
                ),
                as_json=as_json,
            )
            code = ExitCode.FAILED
        raise click.exceptions.Exit(int(code))

    return command


def open_site(invocation: Invocation) -> Site:
    """The site that site.toml describes. Raises UsageError with every mistake in it."""
    return load_site(invocation.site_file)
