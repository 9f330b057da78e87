"""What is asked of glusterd (by commands, conversations and the shell that stays), what counts as an answer, and what follows from it."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.core.errors import ToolFailed
from migrator.cutover.far_search import address_of, kind_of, local_ends
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.model import ClientSeen, TaskKind, volume_state
from migrator.gluster.rules import known_faults
from migrator.gluster.volume import GlusterCommands, GlusterShell, GlusterSource, VolumeOverview
from migrator.hosts.ports import Command, Completed, Conversation, ConversationOver
from migrator.hosts.process import LocalConversation, LocalProcesses
from tests.support.fakes import VirtualClock
from tests.support.run_world import in_loop

RECORDED = Path(__file__).parents[1] / "fixtures" / "gluster"


class Recorded(LocalProcesses):
    """Answers with recordings, in order, and keeps what was asked."""

    def __init__(self, *answers: str | Completed) -> None:
        super().__init__()
        self._answers = list(answers)
        self.asked: list[tuple[bytes, ...]] = []

    async def run(self, command: Command) -> Completed:
        self.asked.append(command.argv)
        answer = self._answers.pop(0)
        if isinstance(answer, Completed):
            return answer
        # The exit code means nothing: real failures gave 0, 1, 2 and 234.
        return Completed(exit_code=0, stdout=(RECORDED / answer).read_bytes(), stderr=b"", timed_out=False)


def commands(recorded: Recorded, clock: VirtualClock | None = None) -> GlusterCommands:
    return GlusterCommands(recorded, clock or VirtualClock(), volume="vol1", gluster="/usr/sbin/gluster")


def test_a_locked_cluster_is_asked_again() -> None:
    clock = VirtualClock()
    begin_s = clock.at_s
    recorded = Recorded("volume-status-lock-conflict.xml", "volume-status-lock-conflict.xml", "quota-list.xml")
    assert len(asyncio.run(commands(recorded, clock).quotas())) == 2
    assert len(recorded.asked) == 3
    assert clock.at_s > begin_s, "with pauses"
    # Quotas that are off are none.
    assert list(asyncio.run(commands(Recorded("quota-list-disabled.xml")).quotas())) == []


def test_a_heal_that_is_launched_or_refused_is_told_in_words_only() -> None:
    """GlusterFS 10.3, asked for XML: the exit codes were 0 and 1."""
    launched = (
        b"Launching heal operation to perform index self heal on volume vol1 has been successful \n"
        b"Use heal info commands to check status.\n"
    )
    recorded = Recorded(Completed(exit_code=0, stdout=launched, stderr=b"", timed_out=False))
    asyncio.run(commands(recorded).heal())
    assert recorded.asked[0][-3:] == (b"volume", b"heal", b"vol1")
    refused = (
        b"Launching heal operation to perform index self heal on volume vol1 has been unsuccessful:\n"
        b"Glusterd Syncop Mgmt brick op 'Heal' failed. Please check glustershd log file for details.\n"
    )
    for exit_code, stdout, stderr in ((1, refused, b""), (1, b"", refused), (0, b"", b"")):
        recorded = Recorded(Completed(exit_code=exit_code, stdout=stdout, stderr=stderr, timed_out=False))
        with pytest.raises(ToolFailed, match=r"has been unsuccessful|printed nothing"):
            asyncio.run(commands(recorded).heal())


@pytest.mark.parametrize("answer", ["volume-info-glusterd-down.xml", "volume-nosuch.xml"])
def test_a_look_that_fails_is_a_problem_and_no_error(tmp_path: Path, answer: str) -> None:
    source = GlusterSource(bytes(tmp_path), commands(Recorded(answer)))
    health = asyncio.run(source.health())
    assert volume_state(health) is None
    assert "unknown" in health.problems[0]


def test_a_healthy_volume_says_nothing_about_a_directory_that_is_no_mount_of_it(tmp_path: Path) -> None:
    recorded = Recorded("volume-info-distribute.xml", "volume-status.xml")
    source = GlusterSource(bytes(tmp_path), commands(recorded))
    (problem,) = asyncio.run(source.health()).problems
    assert "is not a mount of volume vol1" in problem


@pytest.mark.guarantee("moved-acl")
def test_while_files_are_shielded_nothing_is_whole(tmp_path: Path) -> None:
    def doubts() -> tuple[str, ...]:
        recorded = commands(Recorded("volume-info-distribute.xml", "volume-status.xml"))
        return asyncio.run(GlusterSource(bytes(tmp_path), recorded, shields=tmp_path / "shields").health()).doubts

    assert doubts() == ()
    (tmp_path / "shields").mkdir()
    assert doubts() == ()
    (tmp_path / "shields" / "gl1:_b").touch()
    assert [doubt.startswith("files have shields") for doubt in doubts()] == [True]


def test_a_root_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    source = GlusterSource(bytes(tmp_path / "missing"), commands(Recorded()))
    assert "cannot be read" in asyncio.run(source.health()).problems[0]


ECHO = """
import sys
for line in sys.stdin:
    word = line.strip()
    if word == "end":
        break
    if word == "large":
        word = "x" * 3_000_000
    if word == "errors":
        sys.stderr.write("e" * 300_000)
    if word == "silent":
        continue
    sys.stdout.write(word + "." + ("unasked" if word == "twice" else ""))
    sys.stdout.flush()
"""


def begin() -> LocalConversation:
    argv = tuple(os.fsencode(word) for word in (sys.executable, "-c", ECHO))
    return LocalConversation(Command(argv=argv))


async def ask(conversation: Conversation, word: str, timeout_s: float = 30.0) -> bytes:
    return await conversation.ask(
        word.encode() + b"\n", until=lambda said: said.rstrip(b"unasked").endswith(b"."), timeout_s=timeout_s
    )


@in_loop
async def test_questions_and_answers_of_any_size() -> None:
    conversation = begin()
    try:
        assert await ask(conversation, "one") == b"one."
        assert len(await ask(conversation, "large")) == 3_000_001
        assert await ask(conversation, "errors") == b"errors."
        assert await asyncio.gather(*(ask(conversation, word) for word in "abc")) == [b"a.", b"b.", b"c."]
    finally:
        conversation.end()
        conversation.end()


@pytest.mark.parametrize("word", ["end", "silent"])
@in_loop
async def test_no_answer_ends_it(word: str) -> None:
    conversation = begin()
    with pytest.raises(ConversationOver):
        await ask(conversation, word, timeout_s=0.5 if word == "silent" else 30.0)
    with pytest.raises(ConversationOver, match="it was ended"):
        await ask(conversation, "one")


def test_cancelling_a_question_ends_the_program() -> None:
    async def talk() -> int:
        conversation = begin()
        pid = conversation.pid
        asking = asyncio.ensure_future(ask(conversation, "silent"))
        await asyncio.sleep(0.1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        with pytest.raises(ConversationOver):
            await ask(conversation, "one")
        return pid

    pid = asyncio.run(talk())
    for _ in range(12000):
        if not os.path.exists(f"/proc/{pid}"):
            break
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}")


DRAINED = "10.213.77.13:/srv/b2/data"
QUIET = {
    "volume info vol1": "volume-info-distribute.xml",
    "volume status vol1": "volume-status.xml",
    "volume status vol1 detail": "volume-status-detail.xml",
    "pool list": "pool-list.xml",
    "--version": "version.txt",
}
DRAINING = {**QUIET, "volume status vol1": "volume-status-removebrick-inprogress.xml"}


class Answering(Recorded):
    """Answers each question with its recording, in whatever order they come; what has none does not answer."""

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__()
        self._by_question = answers

    async def run(self, command: Command) -> Completed:
        self.asked.append(command.argv)
        question = " ".join(word.decode() for word in command.argv[1:] if not word.startswith((b"--mode", b"--xml")))
        name = self._by_question.get(question)
        if name is None:
            return Completed(exit_code=-9, stdout=b"", stderr=b"", timed_out=True)
        return Completed(exit_code=0, stdout=(RECORDED / name).read_bytes(), stderr=b"", timed_out=False)


def overview(tmp_path: Path, answers: dict[str, str]) -> VolumeOverview:
    commands = GlusterCommands(Answering(answers), VirtualClock(), volume="vol1")
    return asyncio.run(GlusterSource(bytes(tmp_path), commands).overview())


def test_a_drain_comes_with_its_counters(tmp_path: Path) -> None:
    question = f"volume remove-brick vol1 {DRAINED} status"
    found = overview(tmp_path, {**DRAINING, question: "remove-brick-status-inprogress-later.xml"})
    (task,) = found.tasks
    assert (task.kind, task.bricks) == (TaskKind.REMOVE_BRICK, (DRAINED,))
    progress = found.progress[task.id]
    assert progress is not None
    assert progress.files == 5715


@pytest.mark.parametrize("answer", [None, "remove-brick-status-never.xml", "remove-brick-status-other-brick-down.xml"])
def test_counters_that_are_not_told_or_of_another_task_are_not_known(tmp_path: Path, answer: str | None) -> None:
    """The third is an answer about a drain with another id."""
    question = {} if answer is None else {f"volume remove-brick vol1 {DRAINED} status": answer}
    found = overview(tmp_path, {**DRAINING, **question})
    (task,) = found.tasks
    assert found.progress == {task.id: None}


def test_a_volume_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="did not answer"):
        overview(tmp_path, {"--version": "version.txt"})
    with pytest.raises(ToolFailed, match="does not exist"):
        overview(tmp_path, {**QUIET, "volume info vol1": "volume-nosuch.xml"})


def references(version: str | None) -> set[str]:
    return {fault.reference for fault in known_faults(version)}


@pytest.mark.parametrize(
    ("version", "deletes_data"), [("10.3", False), ("11.0", True), ("11.0.1", True), ("11.1", False), ("11.2", False)]
)
def test_the_version_whose_rebalance_deletes_data(version: str, deletes_data: bool) -> None:
    assert ("#4148" in references(version)) is deletes_data
    assert any(fault.stops_drain for fault in known_faults(version)) is deletes_data


CLIENTS = (RECORDED / "volume-status-clients.xml").read_bytes()


def clients(answer: bytes) -> tuple[ClientSeen, ...]:
    told = Recorded(Completed(exit_code=0, stdout=answer, stderr=b"", timed_out=False))
    commands = GlusterCommands(told, VirtualClock(), volume="vol1")
    found = asyncio.run(GlusterVolumeCommands(commands).clients())
    assert told.asked == [(b"gluster", b"--mode=script", b"--xml", b"volume", b"status", b"vol1", b"clients")]
    return found


def test_every_client_of_every_brick_is_told() -> None:
    assert clients(CLIENTS) == (
        ClientSeen(brick="10.213.98.11:/srv/b1/data", address="10.213.98.10:49148"),
        ClientSeen(brick="10.213.98.12:/srv/b1/data", address="10.213.98.10:49147"),
    )


@pytest.mark.parametrize(
    "answer",
    [
        CLIENTS.replace(b"<clientCount>1</clientCount>", b"<clientCount>2</clientCount>", 1),
        CLIENTS.replace(b"<clientCount>1</clientCount>", b"", 1),
        CLIENTS.replace(b"<hostname>10.213.98.10:49147</hostname>", b"<hostname/>"),
        CLIENTS.replace(b"<volName>vol1", b"<volName>vol2"),
        # What `client-list` prints in the place of it: nodes without any clients.
        CLIENTS.replace(b"clientsStatus", b"other"),
    ],
)
def test_an_answer_that_does_not_tell_all_of_them_is_none(answer: bytes) -> None:
    with pytest.raises(ToolFailed):
        clients(answer)


def test_a_volume_is_stopped_without_force() -> None:
    done = b"<cliOutput><opRet>0</opRet></cliOutput>"
    told = Recorded(Completed(exit_code=0, stdout=done, stderr=b"", timed_out=False))
    asyncio.run(GlusterVolumeCommands(GlusterCommands(told, VirtualClock(), volume="vol1")).stop_volume())
    assert told.asked == [(b"gluster", b"--mode=script", b"--xml", b"volume", b"stop", b"vol1")]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("glusterfs --acl --process-name fuse --volfile-server=gl1 --volfile-id=/vol1 /mnt/gl", "own-mount"),
        ("glusterfs --process-name fuse --volfile-server gl1 --volfile-id vol1 /mnt/gl/", "own-mount"),
        ("glusterfs --process-name fuse --volfile-server=gl1 --volfile-id=/vol1 /mnt/other", None),
        ("glusterfs --process-name fuse --volfile-server=gl1 --volfile-id=/vol2 /mnt/gl", None),
        ("glusterfs -s localhost --volfile-id shd/vol1 -p /run/shd.pid", "gluster"),
        ("glusterfs -s localhost --volfile-id rebalance/vol1 --xlator-option *dht.use-readdirp=no", "gluster"),
        ("glusterfs /mnt/gl", None),
    ],
)
def test_the_mount_of_the_site_and_glusters_own_processes_are_told_by_their_command_lines(
    line: str, kind: str | None
) -> None:
    assert kind_of(line.split(), "vol1", "/mnt/gl") == kind


@pytest.mark.parametrize(
    ("family", "address", "shown"),
    [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "::1")],
)
def test_the_local_end_of_a_connection_is_found_by_its_socket(
    family: socket.AddressFamily, address: str, shown: str
) -> None:
    table = "tcp" if family is socket.AF_INET else "tcp6"
    with socket.socket(family) as listening, socket.socket(family) as client:
        try:
            listening.bind((address, 0))
        except OSError:
            pytest.skip(f"this machine has no {address}")
        listening.listen()
        client.connect(listening.getsockname())
        inode = str(os.fstat(client.fileno()).st_ino)
        ends = local_ends(Path(f"/proc/self/net/{table}").read_text())
        assert ends[inode] == f"{shown}:{client.getsockname()[1]}"
        # One that only listens is nobody's connection.
        assert str(os.fstat(listening.fileno()).st_ino) not in ends


def test_an_ipv4_address_in_ipv6_clothes_is_that_address() -> None:
    mapped = socket.inet_pton(socket.AF_INET6, "::ffff:10.0.0.9")
    words = [int.from_bytes(mapped[at : at + 4], sys.byteorder) for at in range(0, 16, 4)]
    assert address_of("".join(f"{word:08X}" for word in words)) == "10.0.0.9"


ANSWER = (RECORDED / "volume-info-distribute.xml").read_bytes()
INFO = ("volume", "info", "vol1")


class Scripted:
    """Conversations whose answers are given: bytes, or an error."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.begun = 0
        self.ended = 0
        self.asked: list[bytes] = []

    def begin(self, command: Command) -> "Scripted":
        assert command.argv == (b"gluster", b"--mode=script", b"--xml")
        self.begun += 1
        return self

    async def ask(self, question: bytes, *, until: Callable[[bytes], bool], timeout_s: float) -> bytes:
        assert timeout_s > 0
        self.asked.append(question)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        for size in range(1, len(answer)):
            # A piece of an answer must not pass for all of it, whatever the pipe cuts.
            if until(answer[:size]) and answer[:size].strip() != answer.strip():
                return answer[:size]
        assert until(answer)
        return answer

    def end(self) -> None:
        self.ended += 1


def ask_shell(scripted: Scripted, *questions: tuple[str, ...]) -> list[bytes | None]:
    shell = GlusterShell(scripted.begin, "gluster")

    async def all_of_them() -> list[bytes | None]:
        return [await shell.ask(words) for words in questions]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize(
    "words",
    [
        ("volume", "quota", "vol1", "list"),
        ("volume", "heal", "vol1", "info", "summary"),
        ("volume", "info", "vol1\nvolume stop vol1"),
        ("volume", "info", "a b"),
        ("volume", "info", ""),
    ],
)
def test_a_question_that_the_shell_cannot_answer_is_not_asked(words: tuple[str, ...]) -> None:
    scripted = Scripted()
    assert ask_shell(scripted, words) == [None]
    assert scripted.begun == 0


@pytest.mark.parametrize(
    "said",
    [
        b"Connection failed. Please check if gluster daemon is operational.\n",
        b"unrecognized word: nosense (position 1)\n" + ANSWER,
        ConversationOver("no answer within 10 s"),
        ToolFailed("gluster could not be started"),
    ],
)
def test_an_answer_that_is_none_ends_the_shell_and_the_next_one_is_new(said: bytes | Exception) -> None:
    scripted = Scripted(said, ANSWER)
    assert ask_shell(scripted, INFO, INFO) == [None, ANSWER]
    assert (scripted.begun, scripted.ended) == (2, 1)


def test_a_shell_that_fails_again_and_again_is_left_alone_for_a_while() -> None:
    scripted = Scripted(*[ConversationOver("it ended")] * 3, *[ANSWER] * 100)
    answers = ask_shell(scripted, *[INFO] * 60)
    assert answers[:53] == [None] * 53
    assert answers[53:] == [ANSWER] * 7


def test_a_shell_has_a_bounded_life() -> None:
    scripted = Scripted(*[ANSWER] * 1001)
    assert None not in ask_shell(scripted, *[INFO] * 1001)
    assert (scripted.begun, scripted.ended) == (2, 1)
