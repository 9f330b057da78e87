"""The commands that an administrator gives for leftovers on drained bricks, with the evidence for each. Pure.

Nothing that a file system shows decides alone whether content may be thrown away, so no command here does that unread:
what takes a name away compares before.
"""

from collections.abc import Iterator, Sequence
from uuid import UUID

from migrator.bricks.drain.model_audit import LeftKind, Leftover, VolumeName
from migrator.core.entry import EntryType
from migrator.core.paths import name as base
from migrator.core.paths import parent, shell_quoted, show
from migrator.core.units import format_size, several

_HEAD = """\
# Leftovers on drained bricks: the evidence, and commands for each (bash). Nothing was done yet. Read them, and give them as
# root. Run "{again}" once more first: Gluster often moves the rest then.
# Nobody may have a file open meanwhile: on the brick's host, `fuser` prints nothing for its path there.
# Each command enters its directory first, and does nothing if a symlink has taken the place of one on the way.
"""


def commands(
    seen: Sequence[tuple[Leftover, VolumeName | OSError | None]], *, mount: bytes, in_volume: bool, again: str
) -> Iterator[str]:
    """Yield the lines of a bash script. `seen` is what the mount shows under the name of each leftover: None for nothing.
    `mount` has no symlink in it. All names of a file that the brick holds become names of one file again.

    Users own the directories and may change them at any time: copies are made in a directory of root's, and names are
    only used within a directory that was entered and checked.
    """
    yield from _HEAD.format(again=again).splitlines()
    copied: set[bytes] = set()
    done: set[bytes] = set()
    for one, shown in seen:
        yield ""
        yield f"# {one.brick} {_facts(one)}"
        if one.kind is LeftKind.FILE and not isinstance(shown, OSError):
            itself = shown is not None and shown.gfid == one.gfid
            if itself and in_volume:
                if not copied:
                    yield f"copies=$(mktemp -d {shell_quoted(_below(mount, b'.migrator-left.XXXXXX'))})"
                if one.path not in done:
                    yield from _copied(one, mount, first=one.gfid not in copied)
                copied.add(one.gfid)
                done.add(one.path)
            elif shown is None:
                yield from _brought_back(one, mount)
            else:
                yield from _compared(one, mount, "a file that was moved" if itself else "another file")
        else:
            yield from _left_to_people(one, mount, shown)
    yield ""
    if copied:
        yield 'rm -r "$copies"'
    yield f"# Then: {again}"


def _facts(one: Leftover) -> str:
    if one.kind is not LeftKind.FILE or one.type is None:
        return f"{show(one.path)}: {one.kind.value}, {one.reason}"
    named = f", {several(one.link_count, 'name')}" if one.link_count > 1 else ""
    return f"{show(one.path)}: {one.type.value}, {format_size(one.size_bytes)}, gfid {one.gfid.hex()}{named}"


def _within(root: bytes, path: bytes, command: str) -> str:
    """A command in the directory of a path, which it names by `./`."""
    directory = shell_quoted(_below(root, parent(path)).rstrip(b"/"))
    return f'cd -P -- {directory} && [ "$(pwd -P)" = {directory} ] && {command}'


def _copied(one: Leftover, mount: bytes, *, first: bool) -> Iterator[str]:
    """A new file has its place on another brick. `ln -f` renames over the name: there is no moment without one."""
    name, copy = shell_quoted(b"./" + base(one.path)), f'"$copies/{one.gfid.hex()}"'
    if first:
        yield "# The volume shows this file: a copy on another brick takes its name."
    made = f"cp -a --no-target-directory {name} {copy} && " if first else ""
    yield f"({_within(mount, one.path, f'{made}ln -fP {copy} {name}')})"


def _brought_back(one: Leftover, mount: bytes) -> Iterator[str]:
    yield "# The volume shows nothing under this name: it is copied from the brick, which replaces nothing."
    host, _ = _place(one)
    source, name = shell_quoted(host + b":" + _on_brick(one)), shell_quoted(b"./" + base(one.path))
    kept = shell_quoted(b"--filter=-x! user.*")
    yield f"({_within(mount, one.path, f'rsync -s -aAXS --ignore-existing {kept} {source} {name}')})"
    yield from _compared(one, mount, "the copy")


def _compared(one: Leftover, mount: bytes, what: str) -> Iterator[str]:
    """Two files that are equal are enough. Otherwise people decide which one is wanted."""
    host, root = _place(one)
    name, on_host = shell_quoted(b"./" + base(one.path)), shell_quoted(host)
    gfid = str(UUID(bytes=one.gfid))
    handle = f".glusterfs/{gfid[:2]}/{gfid[2:4]}/{gfid}"
    remove = _within(root, one.path, f"rm -- {name} {shell_quoted(_below(root, handle.encode()))}")
    yield f"# The volume shows {what} under this name. Equal content: remove it from the brick. Otherwise decide which one is wanted."
    if one.type is EntryType.FILE:
        read, removed = (
            shell_quoted(words.encode("utf-8", "surrogateescape"))
            for words in (_within(root, one.path, f"cat -- {name}"), remove)
        )
        compare = _within(mount, one.path, f"cmp - {name}")
        yield f"(set -o pipefail; ssh {on_host} {read} | ({compare})) && ssh {on_host} {removed}"
    else:
        listed = shell_quoted(_below(mount, one.path))
        yield f"# ls -l {listed}; on {show(host)}: ls -l {shell_quoted(_on_brick(one))}, and if it is not wanted: {remove}"


def _left_to_people(one: Leftover, mount: bytes, shown: object) -> Iterator[str]:
    there = shell_quoted(_on_brick(one))
    host = show(_place(one)[0])
    if isinstance(shown, OSError):
        yield f"# The volume does not answer for this name: {shown.strerror or shown}"
    elif one.kind is LeftKind.NO_GFID:
        yield f"# It was put on the brick past Gluster, and clients that look it up may hang. On {host}, move it off the brick: {there}"
    elif one.kind is LeftKind.MAY_BE_DATA:
        yield (
            f"# On {host}, compare {there} with {shell_quoted(_below(mount, one.path))}. If nothing is missing there, on every brick "
            f"of the set: truncate -s 0 {there}"
        )
    else:
        yield f"# On {host}, find out why {there} cannot be read."


def _below(root: bytes, path: bytes) -> bytes:
    return root.rstrip(b"/") + b"/" + path


def _place(one: Leftover) -> tuple[bytes, bytes]:
    """The host of a brick, and its path there."""
    host, _, path = one.brick.encode("utf-8", "surrogateescape").partition(b":")
    return host, path


def _on_brick(one: Leftover) -> bytes:
    return _below(_place(one)[1], one.path)
