"""Which hooks are called in which order, what they are told, and the programs that they are."""

import asyncio
import itertools
import json
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.core.entry import UserTree
from migrator.hooks import model
from migrator.hooks import rules as hooks_rules
from migrator.hooks.calls import Hooks
from migrator.hooks.rules import describe_problems, would_be_called
from migrator.hosts.proc import carriers
from migrator.hosts.process import LocalProcesses
from tests.support.waiting import wait_for

PRE = model.HookStage(step=model.HookStep.BATCH, event=model.HookEvent.PRE)
POST = model.HookStage(step=model.HookStep.BATCH, event=model.HookEvent.POST)
SITE = model.HookSite(site_id="5e1f", name="gl-bee", file=b"/etc/\xff.toml", source_root=b"/mnt/gl", target_root=b"/b%")
FACTS = model.HookFacts(run_id=7, trees=(UserTree(path=b"home/\xe9\n", user="eve"),), started_at_s=0.5)


def hook(name: bytes, stage: model.HookStage = PRE) -> model.Hook:
    return model.Hook(stage=stage, name=name, path=b"/hooks/" + stage.directory + b"/" + name)


def test_hooks_are_called_in_the_order_of_their_names_and_post_hooks_in_reverse() -> None:
    names = [b"50-b", b"10-z", b"10-a", b"\xff0-x", b"50-B"]
    hooks = [hook(name, stage) for stage in (PRE, POST) for name in names]
    ordered = [b"10-a", b"10-z", b"50-B", b"50-b", b"\xff0-x"]
    assert [one.name for one in hooks_rules.in_order(hooks, PRE)] == ordered
    assert [one.name for one in hooks_rules.in_order(hooks, POST)] == ordered[::-1]
    assert hooks_rules.in_order(hooks, model.HookStage(step=model.HookStep.PASS, event=model.HookEvent.PRE)) == ()


def test_paths_and_reasons_are_given_byte_by_byte_in_the_document_and_safe_in_variables() -> None:
    reason = "Gr\u00fc\u00dfe\non gl3:/b\0" + 2000 * "x"
    facts = replace(FACTS, user="eve", link=b"/home/\xe9", new_path=b"/b%/home/\xe9", reason=reason)
    text = hooks_rules.document(POST, SITE, facts)
    assert text.isascii()
    found = json.loads(text)
    assert found["site"] == {"id": "5e1f", "name": "gl-bee", "file": "/etc/%FF.toml"}
    assert found["trees"] == [{"path": "home/%E9%0A", "user": "eve"}]
    assert (found["link"], found["new_path"]) == ("/home/%E9", "/b%25/home/%E9")
    assert (found["started_at"], found["reason"]) == ("1970-01-01T00:00:00Z", reason)
    variables = dict(hooks_rules.environment(POST, SITE, facts))
    assert (variables["MIGRATOR_SITE"], variables["MIGRATOR_LINK"]) == ("/etc/\udcff.toml", "/home/\udce9")
    assert variables["MIGRATOR_REASON"].startswith("Gr\u00fc\u00dfe on gl3:/b xxx")
    assert len(variables["MIGRATOR_REASON"]) == hooks_rules.MOST_REASON_CHARACTERS


_numbers = itertools.count()


class Directory:
    """A `hooks_dir`, and the hooks in it."""

    def __init__(self, path: Path, timeout_s: float = 60.0) -> None:
        self.path = path
        self.programs = Hooks(
            processes=LocalProcesses(grace_s=0.5, one_output=True),
            directory=os.fsencode(path),
            site_file=b"/site.toml",
            source_root=b"/src",
            target_root=b"/dst",
            timeout_s=timeout_s,
        )

    def add(self, text: str, name: bytes = b"10-hook", stage: model.HookStage = PRE, mode: int = 0o755) -> model.Hook:
        directory = os.fsencode(self.path) + b"/" + stage.directory
        os.makedirs(directory, exist_ok=True)
        file = directory + b"/" + name
        with open(file, "w") as stream:
            stream.write(text)
        Path(os.fsdecode(file)).chmod(mode)
        return model.Hook(stage=stage, name=name, path=file)

    def problems(self) -> list[str]:
        return [f"{os.fsdecode(one.path)} {one.message}" for one in self.programs.find().problems]

    def call(self, text: str, document: bytes = b"{}", token: str = "") -> model.HookResult:
        call = model.HookCall(
            hook=self.add(text),
            document=document,
            environment=(("MIGRATOR_BATCH", "1"), ("MIGRATOR_SITE", "/\udcff")),
            token=token or f"hook-test-{os.getpid()}-{next(_numbers)}",
        )
        return asyncio.run(self.programs.call(call))


@pytest.fixture
def hooks(scratch: Path) -> Directory:
    (scratch / "hooks").mkdir()
    return Directory(scratch / "hooks")


def test_hooks_are_found_with_their_stages(hooks: Directory, scratch: Path) -> None:
    after = model.HookStage(step=model.HookStep.PASS, event=model.HookEvent.POST)
    made = {hooks.add("", b"10-\xff\n"), hooks.add("", b"20-x"), hooks.add("", b"50-mail", after)}
    (hooks.path / "README.md").touch(mode=0o666)
    (hooks.path / "pre-batch.d" / ".hidden").touch(mode=0o666)
    found = hooks.programs.find()
    assert (set(found.hooks), found.problems) == (made, ())
    assert would_be_called(found.hooks, (model.HookStep.BATCH, model.HookStep.PASS)) == (
        "pre-batch.d/10-\\xff\\x0a",
        "pre-batch.d/20-x",
        "post-pass.d/50-mail",
    )
    assert Directory(scratch / "none").programs.find().hooks == ()


def test_a_symlink_is_resolved_above_the_directory_and_refused_there_and_below(hooks: Directory, scratch: Path) -> None:
    hook = hooks.add("")
    (scratch / "way").symlink_to(scratch)
    assert Directory(scratch / "way" / "hooks").programs.find().hooks == (hook,)
    (scratch / "other").symlink_to(hooks.path)
    assert Directory(scratch / "other").problems() == [f"{scratch}/other is a symlink, not a directory"]
    stage = Path(os.fsdecode(hook.path)).parent
    (stage / "20-link").symlink_to("/bin/true")
    (stage / "30-broken").symlink_to("nowhere")
    (hooks.path / "post-batch.d").symlink_to("pre-batch.d")
    assert sorted(hooks.problems()) == [
        f"{hooks.path}/post-batch.d is a symlink, not a directory",
        f"{stage}/20-link is a symlink, not a regular file",
        f"{stage}/30-broken is a symlink, not a regular file",
    ]


@pytest.mark.guarantee("hooks")
def test_hooks_that_others_can_write_are_refused(hooks: Directory) -> None:
    file = Path(os.fsdecode(hooks.add("").path))
    for path, mode in ((file, 0o757), (file, 0o775), (file.parent, 0o777), (hooks.path, 0o1777), (hooks.path, 0o775)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert hooks.problems() == [f"{path} can be written by other users (mode {mode:04o})"]
        path.chmod(before)
        assert hooks.problems() == []


def test_files_that_are_no_hooks_are_refused_with_a_remedy(hooks: Directory) -> None:
    stage = Path(os.fsdecode(hooks.add("").path)).parent
    hooks.add("", b"hold")
    hooks.add("", b"20-plain", mode=0o644)
    (stage / "30-directory").mkdir()
    os.mkfifo(stage / "40-fifo")
    (stage / "10-hook~").touch(mode=0o666)
    for name in ("pre-bach.d", "pre-fail.d", "x.d"):
        (hooks.path / name).mkdir()
    assert describe_problems(hooks.programs.find()) == tuple(
        f"the hook {hooks.path}/{words}"
        for words in (
            "pre-bach.d is named for no stage: rename it to pre-batch.d",
            "pre-batch.d/20-plain is not executable: "
            f"chmod 0755 {stage}/20-plain, or rename it so that it begins with a dot: then it is ignored",
            "pre-batch.d/30-directory is a directory, not a regular file: remove it",
            "pre-batch.d/40-fifo is a fifo, not a regular file: remove it",
            "pre-batch.d/hold has no name of the form NN-name: "
            "rename it, as in 10-name; names that begin with a dot or end in ~ are ignored",
            "pre-fail.d is named for no stage: rename it to post-fail.d",
            "x.d is named for no stage: rename it to a stage of docs/hooks.md, or so that it ends otherwise",
        )
    )


@pytest.mark.needs_root
def test_hooks_of_another_owner_are_refused(hooks: Directory) -> None:
    file = Path(os.fsdecode(hooks.add("").path))
    for path in (file, file.parent, hooks.path, hooks.path.parent):
        os.chown(path, 60001, 0)
        assert hooks.problems() == [f"{path} belongs to uid 60001"]
        os.chown(path, 0, 0)
    assert hooks.problems() == []


def test_a_hook_gets_the_document_and_the_variables_and_nothing_else(hooks: Directory) -> None:
    document = b'{"version": 1}\n' + b" " * (1 << 20)
    ended = hooks.call("#!/bin/sh\nenv\nwc -c\n", document)
    lines = ended.output.splitlines()
    assert ended.exit_code == 0
    assert b"MIGRATOR_BATCH=1" in lines
    assert b"MIGRATOR_SITE=/\xff" in lines
    assert str(len(document)).encode() in lines
    assert not [line for line in lines if line.startswith((b"HOME=", b"USER=", b"PYTHON"))]


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("#!/bin/sh\nexit 62\n", 62, ""),
        ("#!/bin/sh\nexit 255\n", 255, ""),
        ("#!/bin/sh\nkill -9 $$\n", -signal.SIGKILL, ""),
        ("#!/no/such/interpreter\n", None, "first line names is missing"),
        ("echo no first line\n", None, "names no program"),
    ],
)
def test_the_result_of_a_hook_is_reported(hooks: Directory, text: str, code: int | None, says: str) -> None:
    ended = hooks.call(text, b"x" * (1 << 20))
    assert (ended.exit_code, ended.timed_out, ended.output) == (code, False, b"")
    assert says in ended.problem


def test_a_hook_that_hangs_is_ended_with_everything_that_it_started(scratch: Path) -> None:
    (scratch / "hooks").mkdir()
    token = f"hook-test-{os.getpid()}-hang"
    text = "#!/bin/sh\ntrap '' TERM\nsetsid sleep 1000 &\nsleep 1000 &\necho begun\nwhile :; do sleep 1000; done\n"
    for timeout_s in (1.0, 10.0, 60.0):
        ended = Directory(scratch / "hooks", timeout_s=timeout_s).call(text, token=token)
        assert ended.timed_out
        assert carriers([token]) == {}
        if ended.output:  # a slow machine may not have come so far
            break
    assert ended.output == b"begun\n"


def test_orphans_of_a_call_are_ended_by_its_token(hooks: Directory) -> None:
    token = f"hook-test-{os.getpid()}-left"

    async def abandon() -> None:
        call = model.HookCall(hook=hooks.add("#!/bin/sh\nsleep 1000\n"), document=b"", environment=(), token=token)
        task = asyncio.ensure_future(hooks.programs.call(call))
        await asyncio.to_thread(wait_for, lambda: carriers([token]), "the hook")
        assert await hooks.programs.end(token)
        assert (await task).exit_code == -signal.SIGTERM
        assert await hooks.programs.end(token)

    asyncio.run(abandon())
    assert carriers([token]) == {}
