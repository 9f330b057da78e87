"""Wiring of `doctor` and `bench`."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

from migrator.app import Wiring, new_token
from migrator.app.hosts import host_specs, reached
from migrator.bench.bench import BenchmarkPorts
from migrator.bench.hosts import HostWorkloads
from migrator.bench.model import MeasuredFileSystem, host_of, mount_of
from migrator.core.errors import MigratorError, UsageError
from migrator.core.paths import show
from migrator.core.progress import Progress
from migrator.cutover.writers import WriterSearch, client_writers, local_writers
from migrator.fs.model import MountIdentity
from migrator.fs.ports import FileSystem
from migrator.hosts.far_source import far_argv, far_source
from migrator.hosts.model import target_problem
from migrator.hosts.site import HostSpec, SiteHosts, expand, names
from migrator.site.rules_guards import mount_problems

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger


def target_writers(wiring: Wiring, target: FileSystem) -> WriterSearch:
    """Finds the processes that write to the target: on this machine, and on other BeeGFS clients that site.toml can
    reach.
    """
    storage, ssh = wiring.storage_targets(), wiring.site.target.clients
    if storage is None or ssh is None:
        return partial(local_writers, wiring.processes, target)

    def connect(names: Sequence[str]) -> AbstractAsyncContextManager[SiteHosts]:
        return reached(wiring.site, expand(dict.fromkeys(names, HostSpec(ssh=ssh))))

    return partial(client_writers, wiring.processes, target, storage.clients, connect)


# Benchmarks


THIS_HOST = "localhost"
SOURCE, TARGET = "source", "target"


@cache
def benchmark_script(python: bytes) -> tuple[bytes, ...]:
    """The command of the benchmark script on a host with this Python."""
    return far_argv(python, far_source("migrator.bench", ("far_consistency", "far_bench")))


@asynccontextmanager
async def benchmark_world(
    wiring: Wiring, ledger: "MigrationLedger", progress: Progress
) -> AsyncIterator[BenchmarkPorts]:
    """The ports of benchmarks, for the length of the block. Raises UsageError."""
    # This machine too, even if site.toml does not name it.
    specs = {THIS_HOST: HostSpec()} | host_specs(wiring.site)
    async with reached(wiring.site, specs) as hosts:
        yield BenchmarkPorts(
            workloads=HostWorkloads(hosts, benchmark_script),
            records=ledger.benchmarks,
            locks=wiring.locks(),
            progress=progress,
            clock=wiring.clock,
            not_expected=lambda place: _not_expected(wiring, ledger, place),
            not_there=lambda host, place: _not_there(hosts, ledger, host, place),
            tokens=new_token,
        )


def place_of(wiring: Wiring, word: str) -> MeasuredFileSystem:
    """A value of `--on`: `source`, `target`, or a directory that is not a user's. Raises UsageError."""
    roots = {SOURCE: wiring.source_root, TARGET: wiring.target_root}
    if word in roots:
        return MeasuredFileSystem(label=word, root=roots[word])
    root = os.fsencode(word)
    if not root.startswith(b"/"):
        raise UsageError(
            f"--on {show(root)} is neither source, target nor an absolute path",
            hint="write an absolute path, as in --on /mnt/beegfs",
        )
    root = os.path.normpath(root)
    for label, known in roots.items():
        # The root itself is not accessed: it may be a mount that does not answer, and the user did not name it.
        there = _with_real_parent(os.path.normpath(known))
        relative = os.path.relpath(os.path.realpath(root), there)
        if relative == b".":
            return MeasuredFileSystem(label=label, root=known)
        if relative != b".." and not relative.startswith(b"../"):
            raise UsageError(
                f"--on {show(root)} is inside the {label}",
                cause="scans would list the benchmark files, and users could replace them",
                hint=f"use --on {label}: it is the same file system",
            )
    return MeasuredFileSystem(label=show(root), root=root)


def _with_real_parent(path: bytes) -> bytes:
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def host_names(words: Sequence[str]) -> tuple[str, ...]:
    """The hosts of `--hosts` in ClusterShell's notation, each once; this machine by default. `HOST:/PATH` is another mount
    on a host. Raises UsageError.
    """
    found = []
    for word in words:
        hosts, mount, path = word.partition(":/")
        if not path.isprintable():
            raise UsageError(
                f"--hosts {show(os.fsencode(word))}: this path cannot be recorded", hint="mount it elsewhere"
            )
        found += [f"{name}{mount}{path}" for name in ([hosts] if hosts.isalnum() else names(hosts))]
    return tuple(dict.fromkeys(found)) or (THIS_HOST,)


def _not_expected(wiring: Wiring, ledger: "MigrationLedger", place: MeasuredFileSystem) -> tuple[str, ...]:
    """Why the mounted file system is not the one that `init` recorded; None for other directories, which have no
    record.
    """
    known = ledger.site.read()
    if place.label not in (SOURCE, TARGET):
        return ()
    if known is None:
        return ("the site is not set up: run `migrator init`",)
    recorded = known.source if place.label == SOURCE else known.target
    return mount_problems(recorded, _mounted(wiring, place.label), where=f"the {place.label}")


async def _not_there(hosts: SiteHosts, ledger: "MigrationLedger", name: str, place: MeasuredFileSystem) -> str | None:
    """Why another host lacks the source or the target at the same path, or a host at the path of its `HOST:/PATH`. This
    machine was checked before.
    """
    known = ledger.site.read()
    if place.label not in (SOURCE, TARGET) or known is None or name == THIS_HOST:
        return None
    root = mount_of(name, place.root)
    host = await hosts.reach(host_of(name))
    roots = await host.roots(root, b"")
    recorded = known.source if place.label == SOURCE else known.target
    return target_problem(recorded, roots, show(root), where=f"the {place.label}")


def _mounted(wiring: Wiring, label: str) -> MountIdentity | None:
    try:
        with wiring.source() if label == SOURCE else wiring.target() as filesystem:
            return filesystem.identity()
    except (OSError, MigratorError):
        return None
