"""Hostile names, a site, chunks of a pass, attempts at them, and a verification, for tests of what needs some."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.catalog.model import VerificationRecord
from migrator.core.states import ChunkKind, ChunkState, PassKind
from migrator.fs.model import DigestPolicy, MountIdentity
from migrator.hosts.model import ProcessIdentity
from migrator.ledger.locks import Holders, of_call
from migrator.ledger.model import Holder, SiteRecord
from migrator.plan.model import Chunk
from migrator.transfer.model import ChunkRecord, FileProblem, StreamCounters
from tests.support.making import made

HOSTILE = (b"-rf", b"new\nline", b"\xff\xfe", b"a" * 255, b"<script>", "\u202eexe.txt".encode(), b"tab\t|`'\"%41\\")
SITE = SiteRecord(
    site_id="5e1f",
    name="rehearsal",
    created_at_s=10.5,
    source=MountIdentity(
        filesystem="fuse.glusterfs", mounted_from="gl1:/vol", device=None, fsid=2**64 - 1, root_ino=1, sentinel="s"
    ),
    target=MountIdentity(
        filesystem="xfs", mounted_from="/dev/sdb", device=2049, fsid=None, root_ino=128, sentinel=None
    ),
    capabilities=None,
    capabilities_probed_at_s=None,
)


def site_record(source: MountIdentity, target: MountIdentity | None = None, **changes: object) -> SiteRecord:
    """What `init` records; both sides are the same file system unless a target is given."""
    return replace(SITE, source=source, target=target or source, **changes)


def rows_of(ledger: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows of a site's ledger (its file, or the site's directory), read while a writer may be at work."""
    file = ledger / "state" / "ledger.db" if ledger.is_dir() else ledger
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=600)) as database:
        return database.execute(query, values).fetchall()


def files(number: int, size_bytes: int, count: int = 1, tree: bytes = b"home/alice") -> Chunk:
    return Chunk(number=number, kind=ChunkKind.FILES, tree=tree, files=count, size_bytes=size_bytes)


def begin(ledger: MigrationLedger, chunks: Iterable[Chunk]) -> int:
    return ledger.passes.start(
        plan="p", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=chunks, at_s=5.0
    ).id


def waiting(ledger: MigrationLedger, pass_id: int) -> list[ChunkRecord]:
    return list(ledger.passes.pending(pass_id, ChunkKind.FILES, 1000))


def at_work(*calls: tuple[int, str]) -> Holders:
    """Processes that hold the lock of a call: each with its pid and the directory of the call."""
    return lambda: [Holder(pid, "run", 0.0, (of_call(directory),)) for pid, directory in calls]


def attempt(ledger: MigrationLedger, chunk_id: int, token: str = "t1", *, host: str = "here", at_s: float = 6.0) -> int:
    run = ledger.runs.latest()
    if run is None:
        run_id = ledger.runs.start(verb="run", pid=1, at_s=at_s, directory="runs/1")
        ledger.runs.finish(run_id, at_s, 0)
    else:
        run_id = run.id
    return ledger.passes.intend(
        chunk_id=chunk_id, run_id=run_id, token=token, host=host, engine="rsync", argv=("rsync", "caf\udce9"), at_s=at_s
    )


def end(
    ledger: MigrationLedger,
    attempt_id: int,
    *,
    state: str = "succeeded",
    chunk: ChunkState = ChunkState.DONE,
    problems: Sequence[FileProblem] = (),
    counters: StreamCounters | None = None,
    at_s: float = 9.0,
) -> None:
    ledger.passes.started(attempt_id, ProcessIdentity(pid=7, start_ticks=70, boot_id="b"))
    ledger.passes.finish(
        attempt_id,
        at_s=at_s,
        state=state,
        exit_code=0 if state == "succeeded" else 23,
        counters=counters or StreamCounters(files=1, size_bytes=100),
        stderr_tail=b"\xff tail",
        chunk_state=chunk,
        problems=problems,
    )


def verification(**changes: object) -> VerificationRecord:
    """One that has read everything, and found it equal; with other facts."""
    record = made(
        VerificationRecord,
        id=1,
        plan="p",
        batch=1,
        started_at_s=1.0,
        finished_at_s=2.0,
        policy=DigestPolicy(algorithm="xxh3_128", share=1.0, seed=1),
        paths=1,
        size_bytes=1,
        digested_files=1,
        digested_bytes=1,
        whole=True,
        manifest="m",
        manifest_digest="d",
    )
    return replace(record, **changes)
