"""`init` on real directories, file systems and a real ledger."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from migrator.app.ledger import MigrationLedger
from migrator.cli.main import main
from migrator.core.errors import MigratorError, Refused
from migrator.core.events import EventKind
from migrator.fs.model import SENTINEL_NAME
from migrator.fs.reading import PosixSource
from migrator.fs.writing import MountedTarget
from migrator.gluster.volume import GlusterSource
from migrator.site import init as site_init
from migrator.site.config import Site
from migrator.site.load import load_site
from migrator.site.rules_guards import mount_problems
from tests.support.fakes import VirtualClock
from tests.support.xfs import XfsMount, bound

SENTINEL = os.fsdecode(SENTINEL_NAME)


def make_site(directory: Path, *, source: Path | None = None, target: Path | None = None, path: str = "") -> Site:
    source, target = source or directory / "source", target or directory / "target"
    source.mkdir(exist_ok=True)
    target.mkdir(exist_ok=True)
    (source / "home" / "ann").mkdir(parents=True, exist_ok=True)
    file = directory / "site.toml"
    file.write_text(
        f'[site]\nname = "one"\n[source]\nkind = "posix"\nmount = "{source}"\n'
        f'[target]\nkind = "posix"\nmount = "{target}"\npath = "{path}"\n[users]\ntrees = ["home/*"]\n',
        encoding="utf-8",
    )
    return load_site(file)


@contextmanager
def ledger_of(site: Site) -> Iterator[MigrationLedger]:
    site_init.make_state_directory(site)
    with MigrationLedger.open(site.ledger_file, create=True) as ledger:
        yield ledger


def init(
    site: Site, site_id: str = "site-0001", *, source_of: Callable[[Site], PosixSource | GlusterSource] | None = None
) -> site_init.InitResult:
    source = source_of(site) if source_of else PosixSource(os.fsencode(site.source.mount))
    target = MountedTarget(os.fsencode(site.target.root))
    with closing(source), closing(target), ledger_of(site) as ledger:
        return site_init.record_site(
            site,
            source=source,
            target=target,
            ledger=ledger,
            clock=VirtualClock(),
            new_site_id=lambda: site_id,
            make_journal=lambda: False,
        )


def sentinels(site: Site) -> tuple[str, str]:
    return (
        (site.source.mount / SENTINEL).read_text(encoding="ascii").strip(),
        (site.target.root / SENTINEL).read_text(encoding="ascii").strip(),
    )


def test_both_file_systems_are_recorded_and_marked(tmp_path: Path) -> None:
    site = make_site(tmp_path, path="archive/new")
    result = init(site)
    assert result.created
    assert sentinels(site) == ("site-0001", "site-0001")
    for root in (site.source.mount, site.target.root):
        facts = (root / SENTINEL).lstat()
        assert stat.S_ISREG(facts.st_mode)
        assert stat.S_IMODE(facts.st_mode) == 0o600
    assert stat.S_IMODE(site.site.state_dir.stat().st_mode) == 0o700
    with ledger_of(site) as ledger:
        record = ledger.site.read()
        assert record is not None
        assert record.site_id == "site-0001"
        source = PosixSource(os.fsencode(site.source.mount))
        assert mount_problems(record.source, source.identity()) == ()
        assert record.source.sentinel == record.target.sentinel == "site-0001"
        assert [event.kind for event in ledger.events.latest(10)] == [EventKind.SITE_CREATED]


def test_a_crash_between_ledger_and_sentinels_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(tmp_path)

    class Killed(Exception):
        pass

    def killed(root: bytes, site_id: str, *, unfinished: bool) -> None:
        raise Killed

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr("migrator.site.init.leave_sentinel", killed)
            with pytest.raises(Killed):
                init(site)
        assert not (site.target.root / SENTINEL).exists()
    result = init(site, "site-0002")
    assert (result.site_id, result.created) == ("site-0001", False)
    assert sentinels(site) == ("site-0001", "site-0001")


@pytest.mark.parametrize("left", [b"", b"site-00"])
def test_a_sentinel_that_a_crash_left_half_written_is_completed(tmp_path: Path, left: bytes) -> None:
    site = make_site(tmp_path)
    init(site)
    for root in (site.source.mount, site.target.root):
        (root / SENTINEL).write_bytes(left)
    assert set(init(site).done) >= {"wrote the sentinel on the target", "wrote the sentinel on the source"}
    assert sentinels(site) == ("site-0001", "site-0001")


def test_a_source_of_another_migration_is_known_by_its_sentinel(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    site_init.leave_sentinel(os.fsencode(site.source.mount), "site-other")
    for _ in range(2):
        result = init(site)
        assert result.source.sentinel == "site-other"
        assert "another migration" in result.notes[0]
    assert sentinels(site) == ("site-other", "site-0001")


def test_an_empty_directory_in_place_of_the_source_is_never_recorded(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    first = init(site)
    site.source.mount.rename(site.source.mount.with_name("away"))
    site.source.mount.mkdir()
    with pytest.raises(Refused, match="another inode number of the root"):
        init(site)
    assert not (site.source.mount / SENTINEL).exists()
    with ledger_of(site) as ledger:
        record = ledger.site.read()
        assert record is not None
        assert record.source == first.source


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_missing_mount_point_is_refused(tmp_path: Path, side: str) -> None:
    site = make_site(tmp_path)
    moved = site.source.mount if side == "source" else site.target.mount
    moved.rename(moved.with_name("away"))
    with pytest.raises(Refused, match=f"the {side} cannot be read"):
        init(site)


def test_a_symlink_in_place_of_the_sentinel_is_not_followed(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    outside = tmp_path / "outside"
    (site.target.root / SENTINEL).symlink_to(outside)
    with pytest.raises(MigratorError, match="the target cannot be written"):
        init(site)
    assert not outside.exists()


@pytest.mark.needs_root
def test_a_read_only_source_is_recorded_without_a_sentinel(scratch: Path, xfs_source: XfsMount) -> None:
    site = make_site(scratch, source=xfs_source.path)
    xfs_source.remount("ro")
    for _ in range(2):
        result = init(site)
        assert result.source.sentinel is None
        assert "without a sentinel" in result.notes[0]
    with ledger_of(site) as ledger:
        record = ledger.site.read()
        assert record is not None
        assert record.source.sentinel is None
        assert record.source.device is not None


@pytest.mark.needs_root
def test_a_file_system_that_moved_is_known_by_its_sentinel(scratch: Path, make_xfs: Callable[[], XfsMount]) -> None:
    first, second = make_xfs(), make_xfs()
    site = make_site(scratch, target=first.path)
    recorded = init(site)
    # The same place in the tree, another device, and the right sentinel: as after a restore or a reboot.
    site_init.leave_sentinel(second.root, recorded.site_id)
    with bound(second.path, first.path):
        again = init(site)
        assert again.target.device != recorded.target.device
        assert "recorded both file systems again" in again.done


def sides(directory: Path) -> tuple[Path, Path]:
    source, target = directory / "source", directory / "target"
    (source / "home" / "ann").mkdir(parents=True)
    target.mkdir()
    return source, target


def call_init(site_file: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["--site", str(site_file), "init", *options])


def everything(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


def test_files_of_the_program_on_the_source_are_refused(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    text = site.file.read_text(encoding="utf-8")
    site.file.write_text(text.replace('name = "one"', 'name = "one"\nstate_dir = "source/st"'), encoding="utf-8")
    before = everything(tmp_path)
    assert call_init(site.file).exit_code == 2
    # Plans lie beside site.toml.
    source, target = str(site.source.mount), str(site.target.mount)
    named = ("--source-mount", source, "--target-mount", target, "--state-dir", str(tmp_path / "state"))
    done = call_init(site.source.mount / "site.toml", *named)
    assert done.exit_code == 2, done.output
    assert "plans_dir" in done.output
    assert everything(tmp_path) == before


def test_a_refused_init_leaves_nothing(tmp_path: Path) -> None:
    source, target = sides(tmp_path)
    named = ("--source-mount", str(source), "--target-mount", str(target))
    site_init.leave_sentinel(os.fsencode(target), "site-other")
    before = everything(tmp_path)
    done = call_init(tmp_path / "site.toml", *named)
    assert done.exit_code == 4, done.output
    assert "belongs to another migration" in done.output
    assert "site-other" in done.output
    assert everything(tmp_path) == before
    (target / SENTINEL).unlink()
    (source / "home" / "ann").rmdir()
    (source / "home").rmdir()
    before = everything(tmp_path)
    done = call_init(tmp_path / "site.toml", *named)
    assert done.exit_code == 4, done.output
    assert "the source is empty" in done.output
    assert everything(tmp_path) == before
    (source / "people" / "ann").mkdir(parents=True)
    before = everything(tmp_path)
    assert call_init(tmp_path / "site.toml", *named, "--trees", "users/*").exit_code == 2
    assert everything(tmp_path) == before
    assert call_init(tmp_path / "site.toml", *named, "--trees", "people/*").exit_code == 0
    site = load_site(tmp_path / "site.toml")
    assert (site.source.mount, site.target.root, site.users.trees) == (source, target, ("people/*",))
    assert "does not overwrite" in call_init(tmp_path / "site.toml", *named).output


@pytest.mark.parametrize("there", [True, False])
def test_the_path_below_the_target_is_made_only_on_its_own_file_system(tmp_path: Path, *, there: bool) -> None:
    site = make_site(tmp_path, path="archive/new")
    text = site.file.read_text(encoding="utf-8")
    if there:
        site.file.write_text(
            text.replace(f'"posix"\nmount = "{tmp_path}/target"', f'"beegfs"\nmount = "{tmp_path}/target"')
        )
    else:
        site.target.mount.rmdir()
    before = everything(tmp_path)
    done = call_init(site.file)
    assert done.exit_code == 4, done.output
    assert ("is no beegfs file system" if there else "is no directory") in done.output
    assert everything(tmp_path) == before


@pytest.mark.needs_root
def test_a_read_only_target_is_refused_before_anything_is_written(scratch: Path, xfs_source: XfsMount) -> None:
    source, _ = sides(scratch)
    xfs_source.remount("ro")
    before = everything(scratch)
    done = call_init(scratch / "site.toml", "--source-mount", str(source), "--target-mount", str(xfs_source.path))
    assert done.exit_code == 1, done.output
    assert "Read-only file system" in done.output
    assert everything(scratch) == before


def test_an_ordinary_user_is_sent_to_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(tmp_path)

    def denied(self: PosixSource) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(PosixSource, "identity", denied)
    hints = set()
    for uid in (0, 1000):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        with pytest.raises(Refused) as refused:
            init(site)
        hints.add(refused.value.hint)
    assert len(hints) == 2
    assert any("root" in hint for hint in hints)


@pytest.mark.needs_root
def test_a_full_source_is_recorded_without_a_sentinel_and_gets_it_later(scratch: Path, tiny_xfs: XfsMount) -> None:
    """Sites migrate because they are full. The file can be created there, and not written."""
    site = make_site(scratch, source=tiny_xfs.path)
    filling = tiny_xfs.path / "filling"
    with filling.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    for _ in range(2):
        result = init(site)
        assert result.source.sentinel is None
        assert "No space left" in result.notes[0]
        assert not (tiny_xfs.path / SENTINEL).exists()
    filling.unlink()
    assert init(site).source.sentinel == result.site_id
