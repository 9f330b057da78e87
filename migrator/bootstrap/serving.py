"""What serving pages and metrics is made of."""

import asyncio
import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.adapters.output.prometheus import CONTENT_TYPE, to_prometheus
from migrator.adapters.web.listening import Listener, parse_address, read_token
from migrator.adapters.web.looks import Looks
from migrator.adapters.web.requests import Request
from migrator.adapters.web.server import Answer, Route, text
from migrator.bootstrap import Wiring, process_is_gone
from migrator.bootstrap.local_time import window_standings
from migrator.domain.errors import MigratorError
from migrator.domain.metrics import MetricFamily
from migrator.domain.report import RunFacts, RunLife
from migrator.domain.serving import Listening
from migrator.stages.metrics import read_metrics
from migrator.stages.report import read_report
from migrator.stages.watch import pause_s

_HTML, _JSON = "text/html; charset=utf-8", "application/json"
_METRICS_PAUSE_S = 5.0
"""Several Prometheus servers that ask one after the other get the same look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One look at the report. `mark` stands in the page where the nonce of each answer belongs."""

    page: str
    mark: str
    policy: str
    document: bytes
    at_s: float
    silent: bool


def metrics_of(wiring: Wiring, plan: str | None) -> tuple[MetricFamily, ...]:
    """Every metric of now. Raises MigratorError."""
    with wiring.ledger(read_only=True) as ledger:
        now_s = wiring.clock.now_s()
        windows = window_standings(wiring.site, now_s)
        return read_metrics(ledger, now_s=now_s, plan=plan, is_gone=process_is_gone, windows=windows)


def listen(words: str, *, token_file: Path | None, names: Sequence[str]) -> Listener:
    """Bind an address. Raises UsageError, Refused, and MigratorError where it cannot be bound."""
    address, port = parse_address(words)
    return Listener(address, port, token=None if token_file is None else read_token(token_file), names=names)


async def serve_metrics(
    wiring: Wiring, listener: Listener, *, plan: str | None, say: Callable[[Listening], None]
) -> None:
    """Answer `/metrics` until it is cancelled."""
    looks = Looks(
        lambda: to_prometheus(metrics_of(wiring, plan)), pause_s=lambda took_s: pause_s(_METRICS_PAUSE_S, took_s)
    )

    async def metrics(_: Request) -> Answer:
        try:
            return Answer(content_type=CONTENT_TYPE, body=await looks.newest())
        except MigratorError as error:
            return text(503, error.message)

    async def root(_: Request) -> Answer:
        return text(200, "migrator: metrics are at /metrics")

    say(listener.listening)
    await listener.serve({"/metrics": Route(answer=metrics), "/": Route(answer=root)})


async def serve_report(
    wiring: Wiring, listener: Listener, *, plan: str | None, interval_s: float, say: Callable[[Listening], None]
) -> None:
    """Answer with the report until it is cancelled."""
    looks = Looks(lambda: _look(wiring, plan, interval_s), pause_s=lambda took_s: pause_s(interval_s / 2, took_s))

    async def page(_: Request) -> Answer:
        try:
            seen = await looks.newest()
        except MigratorError as error:
            return text(503, error.message)
        nonce = secrets.token_urlsafe(16)
        policy = seen.policy.replace(seen.mark, nonce)
        body = seen.page.replace(seen.mark, nonce).encode()
        return Answer(content_type=_HTML, body=body, headers={"Content-Security-Policy": policy})

    async def document(_: Request) -> Answer:
        try:
            return Answer(content_type=_JSON, body=(await looks.newest()).document)
        except MigratorError as error:
            return _json(503, {"error": {"message": error.message, "cause": error.cause, "hint": error.hint}})

    async def health(_: Request) -> Answer:
        try:
            seen = await looks.newest()
        except MigratorError:
            return _json(503, {"status": "failed"})
        # Whoever asks without a token learns no more than this.
        return _json(200, {"status": "silent" if seen.silent else "ok", "read_at_s": seen.at_s})

    async def icon(_: Request) -> Answer:
        return Answer(status=204)

    say(listener.listening)
    await listener.serve(
        {
            "/": Route(answer=page),
            "/report.json": Route(answer=document),
            "/healthz": Route(answer=health, open_to_all=True),
            "/favicon.ico": Route(answer=icon, open_to_all=True),
        }
    )


def _json(status: int, value: object) -> Answer:
    return Answer(status=status, content_type=_JSON, body=f"{json.dumps(value)}\n".encode())


def _look(wiring: Wiring, plan: str | None, interval_s: float) -> _Seen:
    # With its template engine, the form that takes the longest to load.
    from migrator.adapters.output.html import Live, content_policy, to_html  # noqa: PLC0415
    from migrator.adapters.output.json_form import to_json  # noqa: PLC0415
    from migrator.adapters.output.report_document import report_document  # noqa: PLC0415

    now_s = wiring.clock.now_s()
    with wiring.ledger(read_only=True) as ledger:
        facts = read_report(ledger, wiring.plans(None), now_s=now_s, plan=plan, is_gone=process_is_gone)
    live = Live(nonce=secrets.token_hex(32), interval_s=interval_s)
    return _Seen(
        page=to_html(report_document(facts), live=live),
        mark=live.nonce,
        policy=f"{content_policy(live)}; frame-ancestors 'none'",
        document=to_json(facts).encode(),
        at_s=now_s,
        silent=_is_silent(facts.status.runs),
    )


def _is_silent(runs: Sequence[RunFacts]) -> bool:
    """Whether the newest run of any verb has neither ended nor a sign of life."""
    newest: dict[str, RunFacts] = {}
    for run in runs:
        newest.setdefault(run.verb, run)
    return any(run.life in (RunLife.SILENT, RunLife.KILLED) for run in newest.values())


def write_metrics(file: Path, families: Sequence[MetricFamily]) -> None:
    """Put metrics where node_exporter reads them: whole or as before, to be read by everybody. Raises MigratorError."""
    # Its collector reads whatever ends with .prom; the name beside it must not.
    partial = file.with_name(f".{file.name}.part")
    try:
        # Left by a killed one. Something else under that name, a symlink above all, is not written through.
        partial.unlink(missing_ok=True)
        with open(partial, "wb", opener=_new) as stream:
            stream.write(to_prometheus(families))
            os.fchmod(stream.fileno(), 0o644)
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise MigratorError(
            f"{file} cannot be written: {error.strerror}", hint="name a file in a directory that exists"
        ) from error


async def keep_writing(
    wiring: Wiring, file: Path, *, plan: str | None, interval_s: float, say: Callable[[MigratorError], None]
) -> None:
    """Write metrics again and again until it is cancelled. What fails is said, and tried again: the file before stays."""
    took_s = 0.0
    while True:
        await asyncio.sleep(pause_s(interval_s, took_s))
        began_s = wiring.clock.monotonic_s()
        try:
            await asyncio.to_thread(lambda: write_metrics(file, metrics_of(wiring, plan)))
        except MigratorError as error:
            say(error)
        took_s = wiring.clock.monotonic_s() - began_s


def _new(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_CLOEXEC, 0o600)
