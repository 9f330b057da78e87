"""A user whose number is another on the target is moved there and back, by the program's own verbs."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.fs.rules_owners import SAME_OWNERS, owner_map
from tests.conftest import MakeXfs
from tests.support.cut_site import CutSite, cut_site, top_facts
from tests.support.delta_changes import build, change, let_settle
from tests.support.snapshots import mapped_snapshot

pytestmark = pytest.mark.needs_root

PAIRS = [(60_001, 71_001), (60_009, 60_010), (60_010, 60_009)]
OWNERS = owner_map(PAIRS, PAIRS)
MAP = "{ 60001 = 71001, 60009 = 60010, 60010 = 60009 }"


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    """ann was copied and verified; files of hers have ACLs for others."""

    def rich(tree: Path) -> None:
        build(tree)
        kept = tree / "kept"
        subprocess.run(["setfacl", "-m", "u:60009:r,u:60010:rw,g:60001:x", str(kept / "0")], check=True)
        subprocess.run(["setfacl", "-m", "d:u:60009:rx", str(kept)], check=True)
        (kept / "for another").symlink_to("0")
        os.chown(kept / "for another", 60_010, 500, follow_symlinks=False)
        let_settle()  # otherwise the final pass sends the files again

    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",), fill=rich, prepared=False) as made:
        made.write(cutover='retain = "0s"')
        file = made.site.file
        text = file.read_text().replace('trees = ["home/*"]', f'trees = ["home/*"]\nuid_map = {MAP}\ngid_map = {MAP}')
        file.write_text(text)
        made.call("run", "--all", "--json")
        made.call("verify", "--all", "--json")
        let_settle()  # what is as young as the thaw goes back
        yield made


def mapped_top(facts: tuple[object, ...]) -> tuple[object, ...]:
    uid, gid, mode, *acls = facts
    assert isinstance(uid, int)
    assert isinstance(gid, int)
    return (
        OWNERS.uid(uid),
        OWNERS.gid(gid),
        mode,
        *(OWNERS.acl(one) if isinstance(one, bytes) else one for one in acls),
    )


@pytest.mark.guarantee("rollback")
def test_owners_are_mapped_by_a_cutover_mapped_back_by_a_rollback_and_purged(site: CutSite) -> None:
    source, target = site.source(), site.target()
    with (source / "kept" / "1").open("a") as grown:
        grown.write("in the final pass")
    top, expected = top_facts(source), mapped_snapshot(source, OWNERS)
    site.cutover()
    assert site.tree() == target
    assert top_facts(target) == mapped_top(top)
    assert mapped_snapshot(target, SAME_OWNERS) == expected
    assert {facts[1] for facts in expected.values()} == {71_001, 60_009}
    change(target)
    os.chown(target / "new" / "deep" / "file", 71_001, 71_001)
    top, expected = top_facts(target), mapped_snapshot(target, OWNERS.inverse)
    site.rollback()
    assert site.tree() == source
    assert mapped_top(top_facts(source)) == top
    assert mapped_snapshot(source, SAME_OWNERS) == expected
    assert (source / "kept" / "for another").lstat().st_uid == 60_010
    # Owners that were only written with other numbers are no changes.
    ((files,),) = site.rows("SELECT facts ->> '$.notes.target_changes.files' FROM operations")
    assert 10 < files < 60
    site.cutover()
    assert mapped_snapshot(target, OWNERS.inverse) == expected
    checksum = site.call("purge", "--user", "ann", "--dry-run", "--json").json["checksum"]
    site.call("purge", "--user", "ann", "--confirm", checksum, "--json")
    assert not source.exists()
    assert mapped_snapshot(target, OWNERS.inverse) == expected
