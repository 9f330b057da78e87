"""Users of a real volume are moved one after the other while the others go on working, and moved back with what they did."""

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.core.units import MIB
from migrator.ledger.model import TREE
from tests.support.cluster.brick_runs import BrickRuns, users_copied
from tests.support.cluster.clients import another_client
from tests.support.cluster.fixtures import SMALL
from tests.support.cluster.handle import LabHandle, bring_up, take_down
from tests.support.cluster.opening import open_behind
from tests.support.cluster.sides import digests, rsync_differences
from tests.support.cut_site import top_facts
from tests.support.delta_changes import let_settle, write
from tests.support.holders import HOLD, holding
from tests.support.leftovers import remove_when_killed
from tests.support.waiting import wait_for
from tests.support.xfs import run_tool

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

USERS = 7
_WRITE = f"{HOLD}\nos.write(held, b'written')"
_FLAGS = "os.O_WRONLY | os.O_APPEND"


@dataclass
class Cluster:
    """A site whose users have been copied, and have links that lead to their trees. Each test takes users of its own; `apart`
    are two of different batches.
    """

    lab: LabHandle
    runs: BrickRuns
    links: Path
    left: list[str] = field(default_factory=list)
    apart: tuple[str, str] = ("", "")

    def set_two_apart(self) -> None:
        of = self.batches()
        first = min(of)
        self.apart = first, min(name for name in of if of[name] != of[first])
        self.left[:] = sorted(set(of).difference(self.apart))

    def batches(self) -> dict[str, int]:
        return {tree["tree"]["user"]: tree["batch"] for tree in self.runs.site.json("status")["trees"]}

    def take(self, count: int = 1) -> list[str]:
        """Users who work on the source, and whom no other test has taken."""
        taken, self.left[:] = self.left[:count], self.left[count:]
        return taken

    def source(self, user: str) -> Path:
        return self.lab.source / "home" / user

    def target(self, user: str) -> Path:
        return self.runs.site.target / "home" / user

    def link(self, user: str) -> Path:
        return self.links / user

    def move(self, verb: str, user: str, *words: str, code: int = 0) -> Any:
        """What becomes of one user."""
        (found,) = self.runs.site.json(verb, "--user", user, *words, code=code)["outcomes"]
        return found

    def equal(self, user: str) -> None:
        """By rsync and by digests, tops aside, and owners and modes of directories: by nothing of the program's own."""
        tree = f"home/{user}"
        found = rsync_differences(self.lab.source, self.runs.site.target, tree)
        assert [line for line in found if not line.startswith(b".d")] == []
        assert digests(self.lab.source / tree) == digests(self.runs.site.target / tree)

    @contextmanager
    def at_work(self, users: list[str], journal: Path) -> Iterator[None]:
        """These users write, rename, link and delete all the while; without any, nobody does."""
        if not users:
            # Given no trees, it would work in all of them.
            yield
            return
        words = ["lab", "churn", "--dir", os.fsdecode(self.lab.state.spec.directory), "--rate", "40"]
        trees = [word for user in users for word in ("--tree", f"home/{user}")]
        churn = subprocess.Popen(
            self.runs.site.argv(*words, *trees, "--journal", str(journal)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: journal.exists() and journal.stat().st_size > 2000, f"{users} are at work")
            yield
            assert churn.poll() is None, "they worked until the end"
        finally:
            churn.terminate()
            churn.wait()


def as_user(tree: Path, uid: int) -> str:
    """What somebody who is not root can do there."""
    act = f"echo new > '{tree}/by-himself'"
    done = subprocess.run(
        ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "sh", "-c", act],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0 or b"ermission denied" in done.stderr, done.stderr
    return "refused" if done.returncode else "written"


@pytest.fixture(scope="module")
def cluster(lab_parent: Path) -> Iterator[Cluster]:
    directory = lab_parent / "cutover"
    mode = stat.S_IMODE(lab_parent.stat().st_mode)
    spec = replace(
        SMALL, directory=os.fsencode(directory), hosts=2, users=USERS, files=250, data_bytes=8 * MIB, odd=False
    )
    try:
        lab = bring_up(spec)
        # Users have to come to their trees.
        for path in (lab_parent, directory):
            path.chmod(0o755)
        open_behind(lab, "off")
        with TemporaryDirectory(prefix="migrator-test-") as name:
            remove_when_killed(Path(name)).chmod(0o755)
            via = "bricks" if lab.state.ssh_config else "mount"
            # How much a user at work takes away meanwhile depends on how long these tests take.
            more = {"transfer": 'max_shrink = "100%"\n', "cutover": 'compare_limit = "10min"\n'}
            with users_copied(lab, Path(name), via=via, **more) as (runs, links):
                made = Cluster(lab, runs, links)
                made.set_two_apart()
                yield made
    finally:
        lab_parent.chmod(mode)
        take_down(directory)


@pytest.mark.guarantee("one-stream")
def test_users_of_other_batches_move_while_a_batch_is_copied(cluster: Cluster, scratch: Path) -> None:
    user, other = cluster.apart
    site, runs, of = cluster.runs.site, cluster.runs, cluster.batches()
    mine = str(of[user])
    at_work = [name for name in cluster.left if of[name] == of[other] and name != other]
    theirs = str(of[other])
    write(cluster.source(other) / "big", "x" * 4 * MIB)
    let_settle()
    run = runs.start("--user-batch", theirs, "--deltas", "1", "--bwlimit", str(MIB))
    with runs.held_stream_on(run), cluster.at_work(at_work, scratch / "journal"):
        attempts = runs.rows("SELECT id FROM attempts WHERE state = 'running'")
        assert attempts
        (holder,) = (one for one in site.json("status")["at_work"] if any("tree" in name for name in one["names"]))
        trees = [name for name in holder["names"] if name.startswith(TREE)]
        # Tests before this one, in any order, may have moved others of the batch: a run leaves these alone.
        copied = [
            one for one in site.json("status")["trees"] if one["batch"] == int(theirs) and one["state"] != "moved"
        ]
        assert (holder["pid"], len(trees)) == (run.pid, len(copied))
        # Nobody else touches what the run holds.
        for words in (["run"], ["verify"], ["cutover"]):
            which = ["--user", other] if words == ["cutover"] else ["--user-batch", theirs]
            done = site.call(*words, *which)
            assert done.returncode == 5, done.stdout + done.stderr
            assert f"run of batch {theirs}" in done.stderr
        # Everything else goes on.
        for words in (["verify", "--user-batch", mine], ["plan"], ["brick", "list"], ["run", "--user-batch", mine]):
            done = site.call(*words)
            assert done.returncode == 0, done.stdout + done.stderr
        for verb in ("cutover", "rollback", "cutover"):
            moved = cluster.move(verb, user)
            assert moved["ending"] == "moved", moved
        cluster.equal(user)
        assert {path.stat().st_uid for path in cluster.source(user).rglob("*") if path.is_dir()} <= {0}
        refused = site.json("purge", "--user", user, "--dry-run", code=4)
        assert "retain" in json.dumps(refused), "of this user too nothing stands in the way of a purge but the time"
        still = runs.rows("SELECT id FROM attempts WHERE state = 'running'")
        assert still, "nobody took its streams for those of a killed run"
        assert set(still) <= set(attempts)
        assert run.poll() is None
    # Users of that batch were at work: what they took away meanwhile is listed.
    assert run.wait(timeout=800) in (0, 3)
    assert (cluster.target(other) / "big").read_text() == "x" * 4 * MIB


@pytest.mark.guarantee("open-files")
def test_a_closed_top_keeps_its_user_out_while_root_walks_the_same_mount(cluster: Cluster) -> None:
    (user,) = cluster.take()
    tree, hook = cluster.source(user), cluster.runs.site.directory / "hooks/post-freeze.d/10-walks"
    file, answer = tree / "work" / "file", cluster.runs.site.directory / "answer"
    write(file, "before")
    uid = tree.stat().st_uid
    for path in (file.parent, file):
        os.chown(path, uid, uid)
    let_settle()
    as_him = f"setpriv --reuid={uid} --regid={uid} --clear-groups"
    try:
        # A name that root has just looked up is in the client's cache, if it has one.
        cluster.runs.site.hook(
            hook.relative_to(hook.parents[1]).as_posix(),
            f"stat '{file}'; {as_him} sh -c \"echo more >> '{file}'\" 2> '{answer}'; exit 0",
        )
        moved = cluster.move("cutover", user)
    finally:
        hook.unlink()
    assert moved["ending"] == "moved", moved
    assert "ermission denied" in answer.read_text()
    assert (cluster.target(user) / "work" / "file").read_text() == "before"


@pytest.mark.guarantee("open-files")
def test_an_open_writer_is_found_and_the_cutover_is_reverted(cluster: Cluster) -> None:
    (user,) = cluster.take()
    tree = cluster.source(user)
    try:
        give_up(cluster, user)
        moved = cluster.move("cutover", user)
        assert moved["ending"] == "moved", moved
        cluster.equal(user)
    finally:
        (cluster.runs.site.directory / "hooks/post-freeze.d/10-kills").unlink(missing_ok=True)
    assert cluster.link(user).resolve() != tree


@pytest.mark.guarantee("late-writes")
def test_late_writes_of_another_client_are_kept_until_its_writes_fail(cluster: Cluster) -> None:
    (user,) = cluster.take()
    owner, place = cluster.source(user).stat(), cluster.runs.site.directory
    write(cluster.source(user) / "work" / "file", "before")
    for path in (cluster.source(user) / "work", cluster.source(user) / "work" / "file"):
        os.chown(path, owner.st_uid, owner.st_gid)
    let_settle()
    gates = [place / "go", place / "gone"]
    for gate in gates:
        os.mkfifo(gate)
    try:
        with another_client(cluster.lab, place / "there"):
            write_twice = "read x <&3; echo late > made; echo late >> file; echo >&4; read x <&3; echo later > refused"
            inside = subprocess.Popen(
                ["sh", "-c", f"cd there/home/{user}/work && exec setpriv --reuid={owner.st_uid} --regid={owner.st_gid} "
                 f"--clear-groups sh -c '{write_twice}' 3<>../../../../go 4<>../../../../gone"],
                cwd=place, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            # Once the path is switched.
            cluster.runs.site.hook("post-switch.d/10-late", f"echo > '{gates[0]}'; read x < '{gates[1]}'; exit 0")
            moved = cluster.move("cutover", user)
            gates[0].write_text("\n")
            assert "ermission denied" in inside.communicate()[1]
    finally:
        cluster.runs.site.hook("post-switch.d/10-late", "exit 0")
    assert moved["ending"] == "moved", moved
    assert "2 paths of the source changed after the freeze began; none could not" in moved["words"]
    work = cluster.target(user) / "work"
    assert (work / "made").read_text() == "late\n"
    assert (work / "file").read_text() == "beforelate\n"
    assert (work / "made").stat().st_uid == owner.st_uid
    assert not (cluster.source(user) / "work" / "refused").exists()


def give_up(cluster: Cluster, user: str) -> None:
    """One reason after the other, each with the user unharmed on the source."""
    tree = cluster.source(user)
    run_tool("setfacl", "-m", "u:20999:rwx", str(tree))
    run_tool("setfacl", "-d", "-m", "u:20999:r-x", str(tree))
    tree.chmod(0o2770)
    write(tree / "open", "before")
    write(tree / "work" / "file", "before")
    top = top_facts(tree)

    def assert_given_up(words: str) -> None:
        found = cluster.move("cutover", user, code=4)
        assert (found["ending"], found["cutover"]["state"]) == ("given-up", "reverted"), found
        assert words in found["words"], found
        ((reason,),) = cluster.runs.rows(
            "SELECT failure FROM operations WHERE kind = 'cutover' ORDER BY id DESC LIMIT 1"
        )
        assert words in reason
        assert cluster.link(user).resolve() == tree
        assert top_facts(tree) == top
        assert as_user(cluster.target(user), top[0] if isinstance(top[0], int) else 0) == "refused"

    # A working directory on another machine would be seen by nobody: without a hook that vouches, the user is not even frozen.
    settings = cluster.runs.site.file.read_text()
    cluster.runs.site.file.write_text(settings.replace('freeze = "hook"', 'freeze = "top"'))
    with another_client(cluster.lab, cluster.runs.site.directory / "elsewhere"):
        refused = cluster.move("cutover", user, code=4)
    cluster.runs.site.file.write_text(settings)
    assert refused["ending"] == "refused", refused
    assert "other clients have the volume mounted" in "; ".join(refused["problems"])
    with holding(_WRITE, tree / "open", _FLAGS):
        assert_given_up(f"home/{user}/open")
    with holding(HOLD, tree / "open", _FLAGS):
        assert_given_up(f"home/{user}/open")
    with holding("", cwd=tree / "work"):
        assert_given_up(f"home/{user}/work")
    # A brick goes down in the freeze: he may have to wait for it, frozen, since his top lies on it too.
    pid = cluster.lab.brick_pids()[cluster.lab.bricks[0].name]
    cluster.runs.site.hook("post-freeze.d/10-kills", f"kill -9 {pid}")
    try:
        done = cluster.runs.site.call("cutover", "--user", user, "--json")
        assert done.returncode in (1, 4), done.stdout + done.stderr
        assert cluster.link(user).resolve() == tree
    finally:
        cluster.runs.site.hook("post-freeze.d/10-kills", "exit 0")
        cluster.lab.start_bricks()
    if done.returncode == 1:
        # Frozen, or not thawed: the same command ends that either way.
        done = cluster.runs.site.call("cutover", "--user", user, "--json")
        assert done.returncode in (0, 4), done.stdout + done.stderr
    if done.returncode == 4:
        assert top_facts(tree) == top
