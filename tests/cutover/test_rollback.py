"""What a rollback carries back: over changes of users, and both sides on real file systems."""

import asyncio
import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.catalog.model import VerificationRecord
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError
from migrator.core.units import MIB
from migrator.cutover.model import CutoverRecord
from migrator.cutover.rollback import Rollbacks, note_paths, noted_paths
from migrator.cutover.rollback_sides import SourceAsTarget, TargetAsSource
from migrator.fs.kinds.lustre import LUSTRE
from migrator.fs.model import SourceHealth, TargetCapabilities
from migrator.hosts.process import LocalProcesses
from migrator.reap.model import archive_directory
from migrator.site.filesystem import FileSystemCommand
from tests.conftest import MakeXfs
from tests.support.cut_site import CutSite, cut_site, top_facts
from tests.support.delta_changes import MANY, MANY_BYTES, VANISHED, build, change, let_settle, rewrite, standing, write
from tests.support.records import rows_of
from tests.support.snapshots import snapshot

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    """A user who was moved a moment ago."""

    def settled(tree: Path) -> None:
        build(tree)
        let_settle()  # otherwise the final pass sends the files again

    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",), fill=settled) as made:
        let_settle()  # what is as young as the thaw goes back
        made.cutover()
        yield made


def goes_back(site: CutSite) -> None:
    expected, top = site.snapshot(), top_facts(site.target())
    site.rollback()
    site.assert_works_on("source", expected)
    assert top_facts(site.source()) == top


def stays(site: CutSite, words: str) -> None:
    """The rollback is given up for this reason, and the source is as it was."""
    before, expected = standing(site.source()), site.snapshot()
    found = site.rollback(code=4)
    assert found["ending"] == "given-up"
    assert words in found["words"]
    site.assert_works_on("target", expected)
    assert standing(site.source()) == before


def trashed(site: CutSite) -> set[str]:
    """Paths in the trash of the source, each relative to the place of its pass."""
    places = (site.site.source.path / ".migrator-trash").iterdir()
    return {str(path.relative_to(place)) for place in places for path in place.rglob("*")}


@pytest.mark.guarantee("rollback")
def test_every_kind_of_change_comes_back_and_nothing_else_is_sent(site: CutSite) -> None:
    source = site.source()
    kept, many = standing(source / "kept"), standing(source / "many")
    change(site.target())
    # The top gets what the user made of it.
    site.target().chmod(0o2711)
    os.setxattr(site.target(), "user.note", b"of the top")
    written = site.target().stat().st_mtime_ns
    goes_back(site)
    assert (source.stat().st_mtime_ns, os.getxattr(source, "user.note")) == (written, b"of the top")
    assert standing(source / "kept") == kept
    moved = standing(source / "new" / "moved along")
    assert {path: facts[:2] for path, facts in moved.items()} == {path: facts[:2] for path, facts in many.items()}
    assert len(moved) == MANY
    assert {f"home/ann/{path}" for path in VANISHED} <= trashed(site)
    ((files, size_bytes, gone),) = changes(site)
    assert gone >= len(VANISHED)
    assert 0 < size_bytes < MANY_BYTES * 10
    assert 10 < files < 50


def changes(site: CutSite) -> list[tuple[Any, ...]]:
    keys = ", ".join(f"facts ->> '$.notes.target_changes.{name}'" for name in ("files", "size_bytes", "gone"))
    return site.rows(f"SELECT {keys} FROM operations")


@pytest.mark.guarantee("rollback")
def test_attributes_that_the_target_cannot_keep_stay_on_the_source(scratch: Path, make_xfs: MakeXfs) -> None:
    """The target is made to keep less, as BeeGFS does: the file that nobody touched keeps what only the source has."""

    def rich(tree: Path) -> None:
        build(tree)
        for name in ("0", "1"):
            os.setxattr(tree / "kept" / name, "security.rich", b"only here")
        let_settle()  # otherwise the final pass sends the files again

    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",), fill=rich, prepared=False) as site:
        with MigrationLedger.open(site.site.ledger) as ledger:
            ledger.site.record_capabilities(TargetCapabilities(keeps_security_xattrs=False), 11.0)
        site.call("run", "--all", "--json")
        let_settle()
        site.cutover()
        with (site.target() / "kept" / "1").open("a") as grown:
            grown.write("more")
        site.rollback()
        assert os.getxattr(site.source() / "kept" / "0", "security.rich") == b"only here"
        assert (site.source() / "kept" / "1").read_text().endswith("more")


@pytest.mark.guarantee("rollback")
def test_links_into_the_mount_lead_to_the_side_that_the_user_works_on(scratch: Path, make_xfs: MakeXfs) -> None:
    source, target = make_xfs(), make_xfs()

    def linked(tree: Path) -> None:
        build(tree)
        (tree / "inward").symlink_to(tree / "kept" / "0")
        (tree / "outward").symlink_to("/usr/lib")
        let_settle()  # otherwise the final pass sends the files again

    def links_of(tree: Path) -> dict[str, str]:
        return {path.name: str(path.readlink()) for path in tree.iterdir() if path.is_symlink()}

    with cut_site(
        scratch, source, target, stages=("pre-freeze",), fill=linked, transfer="rewrite_links = true"
    ) as site:
        (plan,) = (site.directory / "plans").glob("*.json")
        surprises = {one["kind"]: one["count"] for one in json.loads(plan.read_text())["surprises"]}
        assert (surprises["symlink-rewritten"], "symlink-into-source-mount" in surprises) == (1, False)
        (verified,) = site.call("verify", "--all", "--json").json
        assert (verified["expected"]["symlink-rewritten"], verified["differences"]) == (1, {})
        before = links_of(site.source())
        there = before | {"inward": f"{site.target()}/kept/0"}
        assert links_of(site.target()) == there
        # A delta pass sends a new one, and no other.
        (site.source() / "late").symlink_to(site.source() / "kept")
        site.call("run", "--all", "--json")
        kept = (site.target() / "inward").lstat().st_ino
        let_settle()
        site.cutover()
        assert (site.target() / "inward").lstat().st_ino == kept
        assert links_of(site.target()) == there | {"late": f"{site.target()}/kept"}
        kept = (site.source() / "inward").lstat().st_ino
        (site.target() / "made").symlink_to(site.target() / "kept")
        (site.target() / "late").unlink()
        (site.target() / "late").symlink_to(site.target() / "kept" / "1")
        let_settle()
        site.rollback()
        assert (site.source() / "inward").lstat().st_ino == kept
        assert links_of(site.source()) == before | {
            "made": f"{site.source()}/kept",
            "late": f"{site.source()}/kept/1",
        }
        (ledger,) = (site.directory / "state" / "back").glob("*/ledger.db")
        ((found, counted),) = rows_of(ledger, "SELECT differences, expected FROM verifications")
        assert (json.loads(found), json.loads(counted)["symlink-rewritten"]) == ({}, 3)
        let_settle()
        site.cutover()
        assert links_of(site.target()) == there | {
            "made": f"{site.target()}/kept",
            "late": f"{site.target()}/kept/1",
        }


@pytest.mark.exhaustive
def test_a_directory_replaced_by_a_symlink_is_not_followed(site: CutSite, scratch: Path) -> None:
    outside = scratch / "outside"
    write(outside / "0", "not the user's")
    shutil.rmtree(site.target() / "kept")
    (site.target() / "kept").symlink_to(outside)
    write(site.target() / "vanishes" / "inner" / "deep", "changed")
    goes_back(site)
    assert (outside / "0").read_text() == "not the user's"
    assert (site.source() / "kept").is_symlink()
    assert "home/ann/kept/0" in trashed(site)


@pytest.mark.exhaustive
def test_a_doubt_stops_the_rollback_without_changes(site: CutSite) -> None:
    # The proof of the switch is not what it was.
    *_, manifest = sorted((site.directory / "state" / "manifests").glob("*/manifest.parquet"))
    content = manifest.read_bytes()
    manifest.write_bytes(content[:-1] + b"?")
    stays(site, "is not the one that the cutover was proven with")
    manifest.write_bytes(content)
    # More is gone than is believed.
    shutil.rmtree(site.target() / "many")
    write(site.target() / "later", "later")
    stays(site, "has lost")
    text = site.site.file.read_text()
    site.site.file.write_text(text.replace("[transfer]\n", '[transfer]\nmax_shrink = "100%"\n'))
    goes_back(site)
    assert "home/ann/many/sub-0/5" in trashed(site)


@pytest.mark.exhaustive
def test_a_full_source_stops_a_rollback_and_space_resumes_it(site: CutSite) -> None:
    filler = site.site.source.path / "filler"
    free = os.statvfs(site.site.source.path)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max((free.f_bavail * free.f_frsize) - 20 * MIB, MIB))
    (site.target() / "big").write_bytes(os.urandom(40 * MIB))
    found = site.rollback(code=4)
    assert "lacks" in found["words"] or "full" in found["words"], found
    filler.unlink()
    goes_back(site)


@pytest.fixture
def changed_site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",)) as made:
        yield made


@pytest.mark.guarantee("rollback")
def test_noted_paths_are_kept_in_order(tmp_path: Path) -> None:
    for paths in ((b"u1/b", b""), (b"u1/a\n", b"u1/b")):
        note_paths(tmp_path / "new" / "noted", paths)
    assert list(noted_paths(tmp_path / "new" / "noted")) == [b"u1/a\n", b"u1/b"]


@pytest.mark.exhaustive
def test_changes_on_the_source_stop_a_rollback_until_they_are_given_up(changed_site: CutSite) -> None:
    changed_site.cutover()
    source, target = changed_site.source(), changed_site.target()
    before = snapshot(os.fsencode(target))
    (source / "d0" / "made by root").write_bytes(b"root's")
    (source / "d1" / "f0001").write_bytes(b"root was here")
    (source / "d2" / "f0002").unlink()
    refused = changed_site.call("rollback", "--user", "ann", "--json", code=4).outcome
    assert refused["ending"] == "refused"
    for words in ("d0/made by root (made)", "d1/f0001 (changed)", "d2/f0002 (removed)", "3 paths"):
        assert words in refused["words"], refused["words"]
    assert "--overwrite-source" in refused["hint"]
    assert changed_site.tree() == target
    assert changed_site.is_open(target), "nobody was frozen for it"
    assert (source / "d1" / "f0001").read_bytes() == b"root was here"

    moved = changed_site.call("rollback", "--user", "ann", "--overwrite-source", "--json").outcome

    assert moved["ending"] == "moved", moved
    assert changed_site.tree() == source
    assert changed_site.snapshot() == before
    trash = changed_site.site.source.path / ".migrator-trash"
    kept = {path.name: path.read_bytes() for path in trash.rglob("*") if path.is_file()}
    assert kept == {"made by root": b"root's", "f0001": b"root was here"}


@pytest.mark.guarantee("late-writes")
def test_late_writes_are_carried_over_if_the_target_is_unchanged(changed_site: CutSite) -> None:
    source, target = changed_site.source(), changed_site.target()
    modes = {path: top_facts(path) for path in sorted(source.rglob("*")) if path.is_dir()}
    assert modes
    changed_site.hook(
        "post-switch.d/60-late",
        f"""cd '{source}' && ln d5/f0005 second && mkdir d0/late && echo new > d0/late/file && ln -s d0 late && echo more >> d1/f0001 && rm d2/f0002
        chmod 2701 d0; setfattr -n user.late -v x d6; setfacl -m u:60010:r d5
        echo too >> d3/f0003; echo mine >> '{target}/d3/f0003'; echo mine > '{target}/d4/both'; echo too > d4/both""",
    )
    found = changed_site.cutover(code=3)
    assert (
        "11 paths of the source changed after the freeze began; 7 of these could not be carried over" in found["words"]
    )
    assert (target / "d0/late/file").read_text() == "new\n"
    assert (target / "late").readlink() == Path("d0")
    assert (target / "d1/f0001").read_bytes() == (source / "d1/f0001").read_bytes()
    (old,) = (changed_site.site.target.path / ".migrator-trash").glob("*-late-*/old/home/ann/d1/f0001")
    assert (target / "d1/f0001").read_bytes() == old.read_bytes() + b"more\n"
    assert (target / "d2/f0002").exists()
    assert (target / "d3/f0003").read_bytes().endswith(b"mine\n")
    assert (target / "d4/both").read_text() == "mine\n"
    assert {(path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) for path in modes} == {(0, 0o700)}
    assert "7 of these could not be carried over" in changed_site.call("status", "--json").out
    (listed,) = changed_site.directory.glob("state/runs/*/late-writes-*")
    assert {f"changed home/ann/{name}" for name in ("d0", "d5", "d6")} <= set(listed.read_text().splitlines())
    # A rollback gives the directories their owners and modes again.
    (changed_site.directory / "hooks/post-switch.d/60-late").unlink()
    assert "d3/f0003 (changed)" in changed_site.call("rollback", "--user", "ann", "--json", code=4).outcome["words"]
    changed_site.call("rollback", "--user", "ann", "--overwrite-source", "--json")
    assert {path: top_facts(path) for path in modes} == modes


@pytest.mark.exhaustive
def test_paths_carried_by_an_aborted_rollback_are_no_changes_of_the_source(changed_site: CutSite) -> None:
    changed_site.cutover()
    (changed_site.target() / "d0" / "new of the user").write_bytes(b"new")
    (changed_site.target() / "d3" / "f0003").write_bytes(b"changed by the user")
    (changed_site.target() / "d4" / "f0004").unlink()
    refuses = changed_site.hook("pre-switch.d/60-refuses", "exit 1")
    before = changed_site.snapshot()
    assert changed_site.rollback(code=4)["ending"] == "given-up"
    assert (changed_site.source() / "d0" / "new of the user").exists(), "it was carried"
    assert changed_site.tree() == changed_site.target()
    refuses.unlink()
    assert changed_site.rollback()["ending"] == "moved"
    assert changed_site.tree() == changed_site.source()
    assert changed_site.snapshot() == before


@pytest.mark.exhaustive
def test_the_source_with_carried_paths_is_purged_after_an_aborted_rollback(
    changed_site: CutSite,
) -> None:
    changed_site.write(cutover='retain = "0s"')
    changed_site.cutover()
    (changed_site.target() / "d0" / "new of the user").write_bytes(b"new")
    (changed_site.target() / "d3" / "f0003").write_bytes(b"changed by the user")
    changed_site.hook("pre-switch.d/60-refuses", "exit 1")
    assert changed_site.rollback(code=4)["ending"] == "given-up"
    (changed_site.target() / "d3" / "f0003").write_bytes(b"changed by the user once more")
    before = changed_site.snapshot()
    checksum = changed_site.call("purge", "--user", "ann", "--dry-run", "--json").json["checksum"]
    # The content of what was carried has to be the one that the rollback's own verification read.
    carried = changed_site.source() / "d0" / "new of the user"
    rewrite(carried, b"odd")
    changed_site.call("purge", "--user", "ann", "--confirm", checksum, "--json", code=4)
    rewrite(carried, b"new")
    changed_site.call("purge", "--user", "ann", "--confirm", checksum, "--json")
    assert not changed_site.source().exists()
    assert changed_site.snapshot() == before


def no_verification() -> None:
    """A rollback cannot verify what it has carried."""

    async def fails(_self: Rollbacks, _record: CutoverRecord) -> VerificationRecord:
        raise MigratorError("the state directory is full")

    Rollbacks.compare = fails  # type: ignore[method-assign, assignment]  # in a process of its own


@pytest.mark.exhaustive
def test_unproven_carried_paths_are_purged_after_a_verification_of_the_user(
    changed_site: CutSite,
) -> None:
    changed_site.write(cutover='retain = "0s"')
    changed_site.cutover()
    target = changed_site.target()
    (target / "d0" / "new of the user").write_bytes(b"new")
    (target / "d3" / "f0003").write_bytes(b"changed by the user")
    given_up = changed_site.start("rollback", "--user", "ann", "--json", before=no_verification).end()
    assert given_up.outcome["ending"] == "given-up", given_up
    assert (changed_site.source() / "d0" / "new of the user").exists(), "it was carried"

    (tree,) = changed_site.call("purge", "--user", "ann", "--dry-run", "--json", code=4).json["trees"]
    assert "`migrator verify --user ann`" in " ".join(tree["reasons"])

    # He works all the while: what he changes now differs, and what he changes later was proven before.
    (target / "d4" / "f0004").write_bytes(b"changed since the rollback")
    (verified,) = changed_site.call("verify", "--user", "ann", "--json", code=3).json
    assert verified["whole"], verified
    assert verified["differences"], verified
    (target / "d3" / "f0003").unlink()
    (target / "d0" / "new of the user").write_bytes(b"newer")
    before = changed_site.snapshot()
    checksum = changed_site.call("purge", "--user", "ann", "--dry-run", "--json").json["checksum"]
    changed_site.call("purge", "--user", "ann", "--confirm", checksum, "--json")
    assert not changed_site.source().exists()
    assert changed_site.snapshot() == before


TREE = b"home/ann"
ARCHIVES = archive_directory(TREE, 7)


@dataclass
class Other:
    problems: tuple[str, ...] = ()

    async def health(self) -> SourceHealth:
        return SourceHealth(problems=self.problems, fingerprint="of its own")


def target_side(root: Path, *, problems: tuple[str, ...] = ()) -> TargetAsSource:
    return TargetAsSource(os.fsencode(root), tree=TREE, name_seed=7, source=Other(problems))  # type: ignore[arg-type]


def source_side(root: Path) -> SourceAsTarget:
    return SourceAsTarget(os.fsencode(root), tree=TREE, name_seed=7, source=Other(("brick one is down",)))  # type: ignore[arg-type]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    made = tmp_path / "home" / "ann"
    write(made / "file", "file")
    write(made / "deep" / ".migrator-archive", "a file of the user's own")
    write(tmp_path / os.fsdecode(ARCHIVES) / "000001.tar.zst", "packed")
    return made


def test_archives_in_the_top_are_hidden_and_the_same_name_elsewhere_is_not(top: Path, tmp_path: Path) -> None:
    for side in (target_side(tmp_path), source_side(tmp_path)):
        names = {entry.path for block in side.read_directory(TREE) for entry in block.entries}
        assert names == {b"home/ann/file", b"home/ann/deep"}
        assert side.look(ARCHIVES) is None
        assert side.look(ARCHIVES + b"/000001.tar.zst") is None
        assert list(side.read_directory(ARCHIVES)) == []
        assert side.look(b"home/ann/deep/.migrator-archive") is not None
        assert [block.entries[0].path for block in side.read_directory(b"home/ann/deep")] == [
            b"home/ann/deep/.migrator-archive"
        ]
        side.close()
    assert (tmp_path / os.fsdecode(ARCHIVES) / "000001.tar.zst").exists()


@pytest.mark.parametrize(
    ("uid", "mode", "shown"),
    [(0, 0o500, 0o700), (0, 0o2500, 0o700), (0, 0o700, 0o700), (0, 0o755, 0o755), (60001, 0o500, 0o500)],
)
def test_only_a_frozen_top_of_the_target_counts_as_closed(
    top: Path, tmp_path: Path, uid: int, mode: int, shown: int
) -> None:
    os.chown(top, uid, 60001)
    top.chmod(mode)
    side = target_side(tmp_path)
    seen = side.look(TREE)
    assert seen is not None
    assert (seen.uid, seen.mode) == (uid, shown)
    side.close()


def test_the_top_of_the_source_is_not_made(top: Path, tmp_path: Path) -> None:
    side = source_side(tmp_path)
    before = top.stat()
    side.make_parents(TREE, ())
    assert top.stat() == before
    with pytest.raises(OSError, match="another user tree"):
        side.make_parents(b"home/bob", ())
    top.rename(tmp_path / "home" / "elsewhere")
    with pytest.raises(OSError, match="no user tree is here"):
        side.make_parents(TREE, ())
    side.close()


def test_the_target_is_as_healthy_as_both_sides_are(top: Path, tmp_path: Path) -> None:
    assert top.is_dir()
    healthy, sick, gone = target_side(tmp_path), target_side(tmp_path, problems=("down",)), target_side(tmp_path / "no")
    assert asyncio.run(healthy.health()).problems == ()
    assert asyncio.run(healthy.health()).fingerprint not in ("", "of its own")
    assert asyncio.run(sick.health()).problems == ("down",)
    assert asyncio.run(gone.health()).problems != ()
    assert asyncio.run(source_side(tmp_path).health()).problems == ("brick one is down",)
    # Its file system is asked too: names that it does not show would be removed from the source.
    tool = FileSystemCommand(replace(LUSTRE, types=()), os.fsencode(tmp_path), LocalProcesses(), path="/nowhere")
    asked = TargetAsSource(os.fsencode(tmp_path), tree=TREE, name_seed=7, source=Other(), tool=tool)  # type: ignore[arg-type]
    assert any("not installed" in doubt for doubt in asyncio.run(asked.health()).doubts)


def test_files_and_directories_are_flushed_and_nothing_else_is_opened(top: Path, tmp_path: Path) -> None:
    os.mkfifo(top / "fifo")
    (top / "symlink").symlink_to("fifo")
    side = source_side(tmp_path)
    side.flush([b"home/ann/file", b"home/ann/deep", b"home/ann/fifo", b"home/ann/symlink", b"home/ann/gone/deeper"])
    seen = side.look(b"home/ann/fifo")
    assert seen is not None
    assert seen.type is EntryType.FIFO
    side.close()
