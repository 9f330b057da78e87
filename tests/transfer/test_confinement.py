"""Users who swap directories for symlinks while root copies their tree."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.site.model import DIRECT
from migrator.transfer.engines.rules_rsync import JAIL_FAILED
from migrator.transfer.model import AttemptVerdict
from tests.fs.test_swaps import Swaps, exchange
from tests.support.snapshots import snapshot
from tests.support.streams import Streams, engine_of, make_trees, rsync_programs
from tests.transfer.native_copy import engine_named

pytestmark = pytest.mark.needs_root

TREE = b"home/mallory"
VICTIM = "victim"
SECRET = b"what mallory must not see\n"
OWN = b"mallory's own\n"
SWAPS = 1000
ROUNDS = 4
FILES = 40


@pytest.fixture
def trees(scratch: Path) -> tuple[Path, Path]:
    """Mallory's tree on both sides; `d` holds files, and the same names hold secrets in many places outside."""
    source, target = make_trees(scratch / "source", scratch / "target", tree=TREE)
    for directory, content in ((source / "d", OWN), (source.parent / VICTIM, SECRET), (scratch / VICTIM, SECRET)):
        directory.mkdir()
        for number in range(FILES):
            (directory / f"f{number}").write_bytes(content)
    return source, target


def outside(trees: tuple[Path, Path]) -> dict[str, str]:
    source, _ = trees
    return {
        "root": "/",
        "parent": "..",
        "neighbour": f"../{VICTIM}",
        "absolute": str(source.parents[2] / VICTIM),
        "absolute-neighbour": str(source.parent / VICTIM),
        "etc": "/etc",
    }


@pytest.fixture(
    params=[
        "parent",
        "absolute-neighbour",
        *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("root", "neighbour", "absolute", "etc")),
    ]
)
def link_to(request: pytest.FixtureRequest, trees: tuple[Path, Path]) -> str:
    return outside(trees)[request.param]


def until(swaps: Swaps) -> Iterator[int]:
    """Rounds, until there were enough of them and of swaps."""
    rounds = 0
    while swaps.count < SWAPS or rounds < ROUNDS:
        rounds += 1
        yield rounds


def names() -> list[bytes]:
    files = [b"d/f%d" % number for number in range(FILES)]
    beyond = [b"d/passwd", b"d/etc/passwd", b"d/" + VICTIM.encode() + b"/f0"]
    return [TREE + b"/" + name for name in files + beyond]


def everything_in(directory: Path) -> list[bytes]:
    found: list[bytes] = []
    for path, _, files in os.walk(directory):
        found += [(Path(path) / name).read_bytes() for name in files if not (Path(path) / name).is_symlink()]
    return found


@pytest.mark.guarantee("confined")
@pytest.mark.parametrize("owner", [0, 20001], ids=["root-owned", "user-owned"])
@pytest.mark.parametrize("program", [*rsync_programs(), DIRECT])
def test_a_swapped_source_directory_leads_nowhere(
    trees: tuple[Path, Path], link_to: str, owner: int, program: str
) -> None:
    source, target = trees
    link = source / "link"
    link.symlink_to(link_to)
    os.chown(link, owner, owner, follow_symlinks=False)
    streams = Streams(engine_named(program), source.parents[1], target.parents[1])
    with Swaps(source / "d", link) as swaps:
        for _ in until(swaps):
            ran = streams.run(names(), tree=TREE)
            assert ran.outcome.verdict in (AttemptVerdict.DONE, AttemptVerdict.RETRY), (ran.completed, ran.stderr)
    arrived = everything_in(target)
    assert set(arrived) <= {OWN}
    copied = {path.name for path in target.rglob("*")} - {"d"}
    assert copied <= {f"f{number}" for number in range(FILES)}


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_swapped_directory_above_the_tree_leads_nowhere(trees: tuple[Path, Path], side: str) -> None:
    """Who owns what lies above the tree can swap the way to it: the stream begins in the tree, or not at all."""
    source, target = trees
    above = (source if side == "source" else target).parent
    beside = above.with_name("beside")
    (beside / "mallory" / "d").mkdir(parents=True)
    for number in range(FILES):
        (beside / "mallory" / "d" / f"f{number}").write_bytes(SECRET)
    before = snapshot(os.fsencode(beside))
    link = above.with_name("link")
    link.symlink_to("beside")
    streams = Streams(engine_of(), source.parents[1], target.parents[1])
    began, refused, line = 0, 0, b"migrator-jail: %s-tree: %d: " % (side.encode(), errno.ENOTDIR)
    with Swaps(above, link) as swaps:
        while swaps.count < SWAPS or not began or not refused:
            ran = streams.run(names(), tree=TREE)
            if ran.completed.exit_code != JAIL_FAILED:
                began += 1
                continue
            refused += 1
            assert ran.stderr.startswith(line), ran.stderr
    if swaps.count % 2:
        exchange(above, link)
    assert set(everything_in(target)) <= {OWN}
    assert snapshot(os.fsencode(beside)) == before


@pytest.mark.guarantee("confined")
def test_a_swapped_target_directory_leads_nowhere(trees: tuple[Path, Path], link_to: str) -> None:
    source, target = trees
    hidden = target.parent / VICTIM
    hidden.mkdir()
    before = (snapshot(os.fsencode(hidden)), snapshot(os.fsencode(target.parents[2] / VICTIM)))
    (target / "d").mkdir()
    link = target / "link"
    link.symlink_to(link_to)
    streams = Streams(engine_of(), source.parents[1], target.parents[1])
    with Swaps(target / "d", link) as swaps:
        for _ in until(swaps):
            for number in range(FILES):
                os.utime(source / "d" / f"f{number}", ns=(swaps.count, swaps.count))
            ran = streams.run(names(), tree=TREE)
            assert ran.outcome.verdict in (AttemptVerdict.DONE, AttemptVerdict.RETRY), (ran.completed, ran.stderr)
    assert (snapshot(os.fsencode(hidden)), snapshot(os.fsencode(target.parents[2] / VICTIM))) == before
    assert not Path("/f0").exists()
    assert not Path("/etc/f0").exists()


def test_the_attack_works_where_nothing_confines(trees: tuple[Path, Path]) -> None:
    """What the tests above defend against is real: the same list, unconfined, brings the neighbour's files."""
    source, target = trees
    (source / "link").symlink_to(f"../{VICTIM}")
    exchange(source / "d", source / "link")
    streams = Streams(engine_of(), source.parents[1], target.parents[1], as_uid=0)
    streams.run(names(), tree=TREE)
    assert SECRET in everything_in(target)
