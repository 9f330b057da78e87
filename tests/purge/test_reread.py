"""What the user has not changed on the target is read there again before a tree is freed: by hosts, resumably, or not at all."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from migrator.core.errors import Interrupted
from migrator.cutover.model import CutoverState
from migrator.hosts.local import LocalHost
from migrator.hosts.ports import Completed, Host, HostLost
from migrator.hosts.process import LocalProcesses
from migrator.purge.model import PurgeOutcome
from migrator.purge.purge import purge
from migrator.transfer.executors import LocalExecutor
from migrator.transfer.ports import ConnectedHost
from migrator.transfer.routes import HostLane
from migrator.verify.content import ContentReader, FileGroup, Readers
from tests.purge.purge_site import PurgeSite, purge_site
from tests.support.delta_changes import rewrite
from tests.support.native_builds import missing_for_native, placing
from tests.support.run_site import fill_tree
from tests.support.snapshots import snapshot
from tests.support.xfs import XfsMount

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(missing_for_native() is not None, reason=str(missing_for_native())),
]

FILES = 12


@dataclass
class Hosts:
    """A machine with both mounts and a brick server with the target alone; what each was given to read."""

    site: PurgeSite
    given: list[tuple[str, tuple[bytes, ...]]] = field(default_factory=list)
    before_read: Callable[[str], None] = lambda _host: None

    @property
    def paths(self) -> list[bytes]:
        return sorted(path for _, some in self.given for path in some)

    def lane(self, name: str, *, reads_mount: bool) -> HostLane:
        hosts, world, reached = self, self.site.world, LocalHost(name=name)

        class Executor(LocalExecutor):
            async def sync(self) -> None:
                """Nothing: what it opens would keep the file system of the test mounted."""

            async def digest(self, paths: Sequence[bytes], *, of_target: bool, **options: Any) -> Completed:
                hosts.before_read(name)
                assert of_target
                hosts.given.append((name, tuple(paths)))
                return await super().digest(paths, of_target=of_target, **options)

        async def reach(_: str) -> Host:
            return reached

        async def prepare(_host: Host, brick: str | None) -> ConnectedHost:
            assert brick is None
            executor = Executor(
                LocalProcesses(),
                source_root=b"",
                target_root=world.target_root,
                compiled=placing(),
                host=reached.name,
            )
            return ConnectedHost(executor=executor, engines={})

        return HostLane(name, 1, reads_mount=reads_mount, reach=reach, prepare=prepare)

    @asynccontextmanager
    async def readers(self) -> AsyncIterator[Readers]:
        lists: Any = None
        lanes = [self.lane("here", reads_mount=True), self.lane("gl1", reads_mount=False)]
        yield Readers(lanes=lanes, guard=AsyncMock(), chunk_lists=lists)


@pytest.fixture
def site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Iterator[PurgeSite]:
    def fill(tree: Path) -> None:
        tree.rmdir()
        fill_tree(tree, files=FILES, size_bytes=2000)

    with purge_site(scratch / "site", xfs_source.path, xfs_target.path, fill) as made:
        yield made


@pytest.fixture
def hosts(site: PurgeSite, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Every file is a group of its own."""
    monkeypatch.setattr("migrator.verify.content._GROUP_FILES", 1)
    made = Hosts(site)
    site.readers = made.readers
    return made


def regular(site: PurgeSite) -> list[bytes]:
    found = (path for path in site.source.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(os.fsencode(path.relative_to(site.world.source_path)) for path in found)


def read_here(site: PurgeSite, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The paths whose content this machine reads through the mount of the target."""
    read: list[bytes] = []
    digest = site.world.target.digest

    def reading(path: bytes, algorithm: str) -> Any:
        read.append(path)
        return digest(path, algorithm)

    monkeypatch.setattr(type(site.world.target), "digest", lambda _self, path, algorithm: reading(path, algorithm))
    return read


def test_a_file_that_the_target_has_lost_since_stops_a_purge(site: PurgeSite, hosts: Hosts) -> None:
    rotten = site.target / "d1/f0001"
    rewrite(rotten, b"x" * rotten.stat().st_size)
    before = snapshot(site.world.source_root)
    done = site.purge()
    assert (done.outcome, [one.path for one in done.findings]) == (PurgeOutcome.REFUSED, [b"home/alice/d1/f0001"])
    assert (snapshot(site.world.source_root), site.state) == (before, CutoverState.RETAINED)
    assert hosts.paths
    # The site's own choice.
    assert site.purge(reread=False).outcome is PurgeOutcome.PURGED


def test_all_hosts_read_the_target_once_and_this_machine_nothing(
    site: PurgeSite, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, read = regular(site), read_here(site, monkeypatch)
    (shown,) = site.dry_run().trees
    assert (shown.reread is not None and shown.reread.files, hosts.given) == (len(files), [])
    done = site.purge()
    assert (done.outcome, done.reread is not None and done.reread.files) == (PurgeOutcome.PURGED, len(files))
    assert (hosts.paths, read) == (files, [])
    assert {name for name, _ in hosts.given} == {"here", "gl1"}
    assert not list((site.world.manifests.directory / ".readings").glob("purge-*"))


def test_files_changed_by_the_user_are_not_read_again(site: PurgeSite, hosts: Hosts) -> None:
    files = regular(site)
    (site.target / "d2/f0002").write_bytes(b"newer")
    (site.target / "d1/f0001").unlink()
    done = site.purge()
    assert (done.outcome, done.changed, done.gone) == (PurgeOutcome.PURGED, 1, 1)
    assert hosts.paths == [path for path in files if path not in (b"home/alice/d2/f0002", b"home/alice/d1/f0001")]


@pytest.mark.parametrize("is_old", [False, True])
def test_an_interrupted_reading_resumes_within_a_day(site: PurgeSite, hosts: Hosts, is_old: bool) -> None:
    files, confirm = regular(site), site.dry_run().checksum

    async def interrupted() -> None:
        running = asyncio.current_task()
        assert running is not None

        def stop(_host: str) -> None:
            if len(hosts.given) > 4:
                running.cancel()

        hosts.before_read = stop
        await purge(site.request(confirm=confirm), site.ports())

    with pytest.raises(Interrupted):
        asyncio.run(interrupted())
    assert site.state is CutoverState.RETAINED
    hosts.before_read = lambda _host: None
    parts = list((site.world.manifests.directory / ".readings").rglob("chunk-*"))
    assert parts
    for part in parts:
        os.utime(part, (1, 1) if is_old else (site.clock.now_s(), site.clock.now_s()))
    hosts.given.clear()
    assert site.purge().outcome is PurgeOutcome.PURGED
    assert len(hosts.paths) == (len(files) if is_old else len(files) - len(parts))


def test_files_of_a_lost_host_are_read_through_the_mount(
    site: PurgeSite, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.verify.content.PATIENCE_S", 0.0)
    files, read = regular(site), read_here(site, monkeypatch)

    def lose(_host: str) -> None:
        raise HostLost("it is gone")

    hosts.before_read = lose
    assert site.purge().outcome is PurgeOutcome.PURGED
    assert sorted(read) == files


def test_a_file_that_changes_after_its_reading_is_read_once_more(
    site: PurgeSite, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, path = read_here(site, monkeypatch), site.target / "d1/f0001"
    by_hosts = ContentReader.read

    async def touch_afterwards(content: ContentReader, groups: Iterable[FileGroup]) -> None:
        await by_hosts(content, groups)
        # Another ctime, and the same size and mtime.
        path.chmod(0o640)

    monkeypatch.setattr(ContentReader, "read", touch_afterwards)
    assert site.purge().outcome is PurgeOutcome.PURGED
    assert (read, len(hosts.paths)) == ([b"home/alice/d1/f0001"], len(set(hosts.paths)))


def test_the_dry_run_shows_the_age_of_the_proofs(site: PurgeSite) -> None:
    (shown,) = site.dry_run().trees
    assert shown.reread is not None
    assert shown.reread.age_s == pytest.approx(site.clock.later_s, abs=3600)
    assert shown.reread.expected_s > 0
    assert shown.reread.proven_at_s is not None
    assert abs(shown.reread.proven_at_s - time.time()) < 3600
