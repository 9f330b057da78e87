"""Leftovers on drained bricks: the evidence for each, and the commands, given on a real cluster."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.bricks.drain.model_audit import LeftKind, Leftover, VolumeName
from migrator.bricks.drain.rules_leftovers import commands
from migrator.core.entry import EntryType
from migrator.lab.model import LabBrick
from tests.bricks.drain.real_drains import digests
from tests.support.cluster.comparing import wait_until_is_there
from tests.support.cluster.fixtures import MakeLab, with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite, lab_site

TIME_NS = 1_577_934_245_678_901_234
GFID = bytes(range(16))
HANDLE = "/srv/b/.glusterfs/00/01/00010203-0405-0607-0809-0a0b0c0d0e0f"
HOSTILE = b"-left\n\xff behind"


def left(path: bytes, **facts: object) -> Leftover:
    known = {"type": EntryType.FILE, "size_bytes": 7, "gfid": GFID} | facts
    return Leftover(brick="gl3:/srv/b", path=path, **({"kind": LeftKind.FILE} | known))  # type: ignore[arg-type]


def given(*seen: tuple[Leftover, VolumeName | OSError | None], in_volume: bool = True) -> list[str]:
    """The commands alone."""
    lines = commands(seen, mount=b"/mnt/gl", in_volume=in_volume, again="migrator brick drain gl3:/srv/b")
    return [line for line in lines if line and not line.startswith("#")]


ITSELF = VolumeName(gfid=GFID, type=EntryType.FILE, size_bytes=7)
OTHER = VolumeName(gfid=bytes(16), type=EntryType.FILE, size_bytes=7)


def test_all_names_of_what_the_volume_shows_become_those_of_one_copy_without_a_gap() -> None:
    first, *others = [left(b"home/%d" % number, link_count=1001) for number in range(1001)]
    made, copy, *links, removed = given((first, ITSELF), *((one, ITSELF) for one in others), (first, ITSELF))
    assert made == "copies=$(mktemp -d /mnt/gl/.migrator-left.XXXXXX)"
    inside, kept = 'cd -P -- /mnt/gl/home && [ "$(pwd -P)" = /mnt/gl/home ]', f'"$copies/{GFID.hex()}"'
    assert copy == f"({inside} && cp -a --no-target-directory ./0 {kept} && ln -fP {kept} ./0)"
    assert links == [f"({inside} && ln -fP {kept} ./{number})" for number in range(1, 1001)]
    assert removed == 'rm -r "$copies"'


def test_nothing_is_removed_from_a_brick_before_it_was_compared() -> None:
    inside = 'cd -P -- /srv/b/home && [ "$(pwd -P)" = /srv/b/home ]'
    here = inside.replace("/srv/b", "/mnt/gl")
    compared = f"(set -o pipefail; ssh gl3 '{inside} && cat -- ./a' | ({here} && cmp - ./a)) && ssh gl3 '{inside} && rm -- ./a {HANDLE}'"
    assert given((left(b"home/a"), OTHER)) == [compared]
    assert given((left(b"home/a"), ITSELF), in_volume=False) == [compared]
    copied = f"({here} && rsync -s -aAXS --ignore-existing '--filter=-x! user.*' gl3:/srv/b/home/a ./a)"
    assert given((left(b"home/a"), None)) == [copied, compared]
    # A file of which the volume knows nothing, or may know anything, is left to people.
    for kind in set(LeftKind) - {LeftKind.FILE}:
        assert given((left(b"home/a", kind=kind, type=None), None)) == []
    assert given((left(b"home/a"), OSError(5, "Input/output error"))) == []
    assert given((left(b"home/a", type=EntryType.SYMLINK), OTHER)) == []


def run(script: list[str]) -> int:
    """Give commands as an administrator does; the host of the brick is this machine."""
    ssh = 'ssh() { shift; bash -c "$1"; }'
    return subprocess.run(["bash", "-c", "\n".join([ssh, *script])], check=False, capture_output=True).returncode


@pytest.mark.guarantee("drain-left")
@pytest.mark.parametrize("name", [b"a", b"-rf", HOSTILE, b"$(touch x)'\\", b"\xff\n"])
@pytest.mark.parametrize("case", ["equal", "different", "gone", "swapped"])
def test_a_file_is_removed_from_a_brick_only_if_it_is_the_one_in_the_volume(
    tmp_path: Path, name: bytes, case: str
) -> None:
    """`swapped`: a symlink has taken the place of its directory, on the brick and in the volume."""
    mount, brick = os.fsencode(tmp_path / "mount"), os.fsencode(tmp_path / "brick")
    handle = brick + b"/.glusterfs/00/01/00010203-0405-0607-0809-0a0b0c0d0e0f"
    for root in (mount, brick):
        os.makedirs(root + b"/home")
    os.makedirs(os.path.dirname(handle))
    for path, content in ((mount, b"content"), (brick, b"content" if case != "different" else b"another")):
        if not (path == mount and case == "gone"):
            with open(path + b"/home/" + name, "wb") as file:
                file.write(content)
    os.link(brick + b"/home/" + name, handle)
    if case == "swapped":
        for top in (tmp_path / "mount", tmp_path / "brick"):
            (top / "home").rename(top / "victim")
            (top / "home").symlink_to("victim")
    one = Leftover(
        brick="gl3:" + os.fsdecode(brick), kind=LeftKind.FILE, path=b"home/" + name, type=EntryType.FILE, gfid=GFID
    )
    script = list(commands([(one, OTHER)], mount=mount, in_volume=True, again="migrator"))
    assert not any("\n" in line for line in script)
    assert (run(script) == 0) is (case == "equal")
    assert [os.path.lexists(path) for path in (brick + b"/home/" + name, handle)] == [case != "equal"] * 2


@pytest.mark.guarantee("drain-left")
@pytest.mark.parametrize("swapped", [False, True])
def test_a_copy_takes_all_names_and_none_outside_of_their_directories(tmp_path: Path, swapped: bool) -> None:
    mount = os.fsencode(tmp_path)
    (tmp_path / "home").mkdir()
    names = [b"home/" + HOSTILE, b"home/second"]
    with open(mount + b"/" + names[0], "wb") as file:
        file.write(b"content")
    os.link(mount + b"/" + names[0], mount + b"/" + names[1])
    before = os.stat(mount + b"/" + names[0]).st_ino
    if swapped:
        (tmp_path / "home").rename(tmp_path / "victim")
        (tmp_path / "home").symlink_to("victim")
    found = [(left(name, link_count=2), ITSELF) for name in names]
    run(list(commands(found, mount=mount, in_volume=True, again="migrator")))
    after = [os.stat(mount + b"/" + name) for name in names]
    assert {one.st_nlink for one in after} == {2}
    assert [one.st_ino == before for one in after] == [swapped] * 2
    assert sorted(os.listdir(mount)) == sorted([b"home", b"victim"] if swapped else [b"home"])


@pytest.fixture
def lab(make_lab: MakeLab) -> LabHandle:
    lab = make_lab(hosts=3, bricks_per_host=1, users=2, files=60, odd=False)
    with_ssh(lab)
    return lab


@pytest.fixture
def site(lab: LabHandle, tmp_path: Path) -> Iterator[LabSite]:
    target = Path(os.fsdecode(lab.state.target)) / f"left-{os.getpid()}-{time.monotonic_ns()}"
    target.mkdir()
    more = '[drain]\nthrottle = "aggressive"\npoll = "0.2s"\n'
    with lab_site(lab, tmp_path / "site", target, via="auto", hosts=True, more=more) as made:
        made.json("init")
        made.json("scan", "--via", "bricks")
        yield made


def made_on(lab: LabHandle, brick: LabBrick, directory: Path, make: str, *, elsewhere: bool = False) -> Path:
    """A new file or symlink that lies on this brick, or `elsewhere`: Gluster places it by its name."""
    on_brick = lab.brick_directory(brick) / directory.relative_to(lab.source)
    for number in range(200):
        one = directory / f"{make}-{number}"
        if make == "symlink":
            one.symlink_to(f"nowhere-{number}")
        else:
            one.write_bytes(b"content of " + os.fsencode(one.name))
        if os.path.lexists(on_brick / one.name) is not elsewhere:
            return one
        one.unlink()
    raise AssertionError("no name lies there")


@pytest.mark.cluster
@pytest.mark.needs_root
@pytest.mark.guarantee("drain-commit")
@pytest.mark.guarantee("drain-left")
def test_the_commands_bring_back_what_gluster_leaves_and_the_brick_goes(lab: LabHandle, site: LabSite) -> None:
    brick = lab.bricks[-1]
    root = lab.brick_directory(brick)
    home = lab.source / "home" / "left"
    home.mkdir()
    # After the scan, so that the guard does not know it.
    symlink = made_on(lab, brick, home, "symlink")
    again = home / "symlink-again"
    os.link(symlink, again, follow_symlinks=False)
    os.chown(symlink, 20001, 20002, follow_symlinks=False)
    os.utime(symlink, ns=(TIME_NS + 1, TIME_NS), follow_symlinks=False)
    before = digests(lab.source)
    words = (brick.name, "--accept-open-files")

    refused = site.json("brick", "drain", *words, code=4)
    assert len(refused["left_behind"]) == 2, refused
    # The volume is never asked for this one, as clients can hang on that.
    placed = os.fsencode(root) + b"/home/left/" + HOSTILE
    with open(placed, "wb") as file:
        file.write(b"past Gluster")
    refused = site.json("brick", "drain", *words, code=4)
    assert (refused["ending"], len(refused["left_behind"])) == ("halted", 3)
    lines = [line.split("\t") for line in Path(refused["left_file"]).read_text().splitlines()]
    assert sorted(kind for _, kind, *_ in lines) == ["file", "file", "no-gfid"]
    assert len({gfid for _, kind, _, _, gfid in lines if kind == "file"}) == 1
    script = Path(refused["commands_file"])
    shown = script.read_text()
    assert brick.name in shown
    assert [line.split()[0] for line in shown.splitlines() if line and line[0] != "#"] == [
        "copies=$(mktemp",
        "(cd",
        "(cd",
        "rm",
    ]

    subprocess.run(["bash", "-eu", script], check=True)
    Path(os.fsdecode(placed)).unlink()
    assert symlink.readlink() == again.readlink() == Path(f"nowhere-{symlink.name.partition('-')[2]}")
    facts = symlink.lstat()
    assert (facts.st_ino, facts.st_uid, facts.st_gid) == (again.lstat().st_ino, 20001, 20002)
    assert facts.st_mtime_ns == TIME_NS
    assert not [one for one in (symlink, again) if os.path.lexists(root / one.relative_to(lab.source))]
    done = site.json("brick", "drain", *words)
    assert (done["ending"], done["standing"]["failures"], done["standing"]["skipped"]) == ("done", 0, 0)
    assert (done["left_behind"], done["commands_file"]) == ([], None)
    wait_until_is_there(lambda: digests(lab.source), before)
    assert {symlink, again} == set(home.iterdir())
