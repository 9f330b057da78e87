"""Which links of users can be switched, and the reasons against it. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from migrator.core.entry import EntryType, UserTree
from migrator.core.events import Finding, failure, ok
from migrator.core.paths import is_beneath, show
from migrator.core.units import first_of, several
from migrator.fs.model import FileLook, Mount, untrusted
from migrator.hooks.model import HookEvent, HooksFound, HookStage, HookStep
from migrator.site.model import LinkPlace, LinkProblem, LinkReading

_CHECK = "links"
_NAME_LIMIT_BYTES = 255
_GLUSTER = "fuse.glusterfs"
_MOST_FINDINGS = 20
_BY_HOOK = 'or set [cutover] switch = "hook" and switch in a hook (docs/cutover.md)'


def user_problem(user: str) -> str | None:
    """The reason why the name of a user cannot be part of a path; None if it can. A backslash appears only in escaped
    names, so it is never literal.
    """
    if not user:
        return "it is empty"
    if user.startswith("."):
        return "it begins with a dot"
    if "/" in user or "\\" in user:
        return "it contains a slash or a backslash"
    if not user.isprintable() or user != user.strip():
        return "it contains a non-printable character, or ends with a blank"
    return "it is too long" if len(user.encode("utf-8")) > _NAME_LIMIT_BYTES else None


def naming_problem(link: str, tree: UserTree) -> str | None:
    """The reason why the link of a tree cannot be named: its user, or a part of its path, is not a plain name. None if
    it can.
    """
    parts = [tree.user] if "{user}" in link else []
    parts += tree.path.decode("utf-8", "surrogateescape").split("/") if "{tree}" in link else []
    return next((problem for part in parts if (problem := user_problem(part))), None)


def link_path(link: str, tree: UserTree) -> bytes:
    """The path of a tree's link. Raises ValueError if it cannot be named; `naming_problem` returns the reason."""
    if problem := naming_problem(link, tree):
        raise ValueError(problem)
    path = tree.path.decode("utf-8", "surrogateescape")
    # One pass: a user may be called {tree}.
    fields = {"{user}": tree.user, "{tree}": path}
    return re.sub(r"\{user\}|\{tree\}", lambda found: fields[found[0]], link).encode("utf-8", "surrogateescape")


def way_problem(way: Sequence[FileLook], euid: int, *, reached: bool) -> LinkProblem | None:
    """The first path component that lets a user other than root redirect the link. `reached`: the path was resolved
    completely, and the last directory holds the link.
    """
    for look in way:
        if look.type not in (EntryType.DIRECTORY, EntryType.SYMLINK):
            message = f"{show(look.path)} on the way is a {look.type.value}"
            return LinkProblem(message=message, fix="correct [cutover] link")
    found = untrusted(way, euid, reached=reached)
    return None if found is None else LinkProblem(message=f"{show(found[0])} {found[1]}", fix=found[2])


def place_problem(look: LinkReading, place: LinkPlace) -> LinkProblem | None:
    """A problem if a link is on the source or the target: there it would be one of the files to migrate."""
    if look.directory is None:
        return None
    for side, root in (("source", place.source_root), ("target", place.target_root)):
        if is_beneath(look.directory, root.rstrip(b"/")):
            return _inside(look, side)
    return _inside(look, "source") if look.mount is not None and _shows(look.mount, place.volume) else None


def link_problem(look: LinkReading, place: LinkPlace, euid: int) -> LinkProblem | None:
    """The reason why a link cannot be switched, independent of its destination."""
    shown = show(look.path)
    if (problem := way_problem(look.way, euid, reached=look.directory is not None)) or (
        problem := place_problem(look, place)
    ):
        return problem
    if look.unread:
        return LinkProblem(message=f"{shown} cannot be read: {look.unread}", fix="fix that error")
    if look.directory is None or look.type is None:
        return LinkProblem(
            message=f"{shown} is missing", fix=f"create the symlink that the user works through, {_BY_HOOK}"
        )
    if look.type is not EntryType.SYMLINK:
        return LinkProblem(
            message=f"{shown} is a {look.type.value}, not a symlink: it cannot be replaced atomically",
            fix=f"put a symlink to the user's tree there, {_BY_HOOK}",
        )
    return None


def leads_elsewhere(look: LinkReading, allowed: Collection[bytes]) -> LinkProblem | None:
    """A problem if a symlink leads to none of these real paths."""
    if look.leads_to is not None and look.leads_to in allowed:
        return None
    pointer = f"{show(look.path)} points to {show(look.text or b'')}"
    where = "which leads nowhere" if look.leads_to is None else f"which leads to {show(look.leads_to)}"
    wanted = " or ".join(show(path) for path in allowed)
    return LinkProblem(
        message=f"{pointer}, {where}, and not to {wanted}",
        fix=f"correct the link; if it leads to another mount of the same files, {_BY_HOOK[3:]}",
    )


def shared_links(trees: Collection[UserTree]) -> Mapping[str, tuple[UserTree, ...]]:
    """Users of several trees: one link cannot lead to two."""
    of_user: dict[str, list[UserTree]] = {}
    for tree in trees:
        of_user.setdefault(tree.user, []).append(tree)
    return {user: tuple(found) for user, found in of_user.items() if len(found) > 1}


def check_links(
    place: LinkPlace,
    looks: Sequence[tuple[UserTree, LinkReading]],
    *,
    real: Mapping[bytes, tuple[bytes, bytes]],
    euid: int,
) -> list[Finding]:
    """For `doctor`: a finding for each link that cannot be switched now. `looks` has users whose names can be part of
    a path; `real` has the real paths of each tree on the source and on the target.
    """
    problems: dict[str, str] = {}  # a problem of a directory affects all links in it, and is reported once
    for tree, look in looks:
        problem = link_problem(look, place, euid) or leads_elsewhere(look, real[tree.path])
        if problem is not None:
            problems.setdefault(problem.message, problem.fix)
    if not problems:
        return [ok(_CHECK, f"{several(len(looks), 'link')} of the active plan can be switched")]
    findings = [failure(_CHECK, message, fix) for message, fix in list(problems.items())[:_MOST_FINDINGS]]
    if more := len(problems) - len(findings):
        findings.append(
            failure(
                _CHECK,
                f"{several(more, 'link')} more cannot be switched",
                "fix these, then run `migrator doctor` again",
            )
        )
    return findings


def check_switch_hooks(found: HooksFound, *, by_hook: bool) -> list[Finding]:
    """Check that there is a hook to make the switch. `by_hook`: [cutover] switch is `hook`; otherwise no `link` is named."""
    stage = HookStage(step=HookStep.SWITCH, event=HookEvent.PRE)
    if any(hook.stage == stage for hook in found.hooks):
        return [ok(_CHECK, f"hooks of {stage.name} make the switch")]
    if by_hook:
        fix = f'put one into {stage.name}.d in [site] hooks_dir (docs/cutover.md), or set [cutover] switch = "symlink"'
        return [failure(_CHECK, f'[cutover] switch is "hook", and there is no {stage.name} hook to make it', fix)]
    fix = f'name the links in [cutover] link, such as "/home/{{user}}", {_BY_HOOK}'
    return [failure(_CHECK, '[cutover] switch is "symlink", and [cutover] link names none', fix)]


def check_link_names(link: str, trees: Collection[UserTree]) -> Iterator[Finding]:
    """For `doctor`: trees without a valid link, and users with one link for several trees."""
    for tree in trees:
        if problem := naming_problem(link, tree):
            yield failure(
                _CHECK,
                f"no link can be named for {show(tree.path)}: {problem}",
                f"give the tree a user in [users] map, {_BY_HOOK}",
            )
    for user, found in sorted(shared_links(trees).items()) if "{tree}" not in link else ():
        named = first_of([show(tree.path) for tree in found])
        message = f"{several(len(found), 'tree')} have the link of one user, {show(user.encode('utf-8', 'surrogateescape'))}: {named}"
        fix = f"name the links by {{tree}}, or give the trees users of their own in [users] map, {_BY_HOOK}"
        yield failure(_CHECK, message, fix)


def _inside(look: LinkReading, side: str) -> LinkProblem:
    return LinkProblem(
        message=f"{show(look.path)} lies inside the {side} (in {show(look.directory or b'')})",
        fix=f"name links outside both file systems in [cutover] link, {_BY_HOOK}",
    )


def _shows(mount: Mount, volume: str | None) -> bool:
    """True if a mount shows the volume, from any server: `gl1:/vol1`, or a directory of it (`gl1:/vol1/home`)."""
    if volume is None or mount.filesystem != _GLUSTER:
        return False
    below = mount.source.rpartition(b":")[2].lstrip(b"/")
    return is_beneath(below, volume.encode("utf-8", "surrogateescape"))
