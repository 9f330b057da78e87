"""What is told to users, in words, and which template is whose. Pure."""

import stat
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from migrator.decide.switching import way_problem
from migrator.domain.entry import EntryType
from migrator.domain.finding import Finding, failure, ok
from migrator.domain.hooks import FileLook, HookEvent, HookStage, HookStep
from migrator.domain.paths import show
from migrator.domain.switching import LinkProblem
from migrator.domain.texts import TextFacts, TextLook, UserText
from migrator.domain.units import format_count, format_duration, format_size

_CHECK = "texts"

TextWords = Mapping[str, str | bool | None]

EXAMPLES: tuple[TextFacts, ...] = tuple(
    TextFacts(
        site="gl-to-beegfs",
        user="alice",
        tree=b"home/alice",
        old_path=b"/mnt/gl/home/alice",
        new_path=b"/mnt/beegfs/home/alice",
        link=link,
        back=back,
        files=9_000_000,
        size_bytes=13_194_139_533_312,
        begins_at_s=at_s,
        freeze_s=at_s and 240.0,
        frozen_s=None if moved is None else 250.0,
        moved=moved,
        reason="" if moved is not False else "a file is still open",
    )
    for back in (False, True)
    for moved in (None, True, False)
    for link, at_s in ((b"/home/alice", 1_767_294_000.0), (None, None))
)
"""Facts of every kind: a template that can be rendered with all of these can be rendered."""


def text_of(stage: HookStage) -> UserText | None:
    """Which text the hooks of a stage get: ahead of the move and before the freeze the first, while the user is frozen the second, and when he may
    work again the third. None for stages that are about no user.
    """
    match stage.step, stage.event:
        case (HookStep.ANNOUNCE, _) | (HookStep.FREEZE, HookEvent.PRE):
            return UserText.BEFORE
        case (HookStep.FREEZE, HookEvent.POST) | (HookStep.SWITCH, _) | (HookStep.THAW, HookEvent.PRE):
            return UserText.AT
        case HookStep.THAW, HookEvent.POST:
            return UserText.AFTER
        case _:
            return None


def text_words(facts: TextFacts) -> TextWords:
    """The names that a template may use. Every text is one line that can be shown; None is what is not known."""
    return {
        "site": _one_line(facts.site),
        "user": _one_line(facts.user),
        "tree": show(facts.tree),
        "old_path": show(facts.old_path),
        "new_path": show(facts.new_path),
        "link": None if facts.link is None else show(facts.link),
        "back": facts.back,
        "files": format_count(facts.files),
        "size": format_size(facts.size_bytes),
        "begins": None if facts.begins_at_s is None else begins_words(facts.begins_at_s),
        "freeze": None if facts.freeze_s is None else format_duration(facts.freeze_s),
        "frozen": None if facts.frozen_s is None else format_duration(facts.frozen_s),
        "moved": facts.moved,
        "reason": _one_line(facts.reason),
    }


def template_problem(way: Sequence[FileLook], file: FileLook, euid: int) -> LinkProblem | None:
    """Why a template is not used: somebody else than root could have written it. `way` are the directories down to it."""
    if problem := way_problem(way, euid, reached=True):
        return problem
    path = show(file.path)
    if file.type is not EntryType.FILE:
        return LinkProblem(
            message=f"{path} is a {file.type.value}, not a regular file", fix="put the file itself there"
        )
    if file.uid not in (0, euid):
        return LinkProblem(message=f"{path} belongs to uid {file.uid}", fix=f"chown root: {path}")
    if file.mode & (stat.S_IWGRP | stat.S_IWOTH):
        return LinkProblem(message=f"{path} can be written by others (mode {file.mode:04o})", fix=f"chmod go-w {path}")
    return None


def unknown_names(used: Collection[str]) -> str | None:
    """A sentence where a template uses names that no text has."""
    known = text_words(EXAMPLES[0])
    unknown = sorted(name for name in used if name not in known)
    if not unknown:
        return None
    return f"unknown names: {', '.join(unknown)}; there are {', '.join(known)}"


def check_texts(looks: Sequence[TextLook], directory: bytes) -> list[Finding]:
    """For `doctor`: which texts there are, or why one cannot be made."""
    problems = [failure(_CHECK, look.problem, look.fix) for look in looks if look.problem]
    if problems:
        return problems
    there = [show(look.path.rpartition(b"/")[2]) for look in looks if look.there]
    return [ok(_CHECK, f"{', '.join(there) or 'none'} in {show(directory)}")]


def _one_line(text: str) -> str:
    return show(text.encode("utf-8", "surrogateescape"))


def begins_words(at_s: float) -> str:
    """When a move begins, for people: `2026-01-01 19:00 UTC`."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
