"""Reading site.toml: all mistakes at once, each with its line and a suggestion."""

import os
import re
import shutil
import stat
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from migrator.core.errors import Refused, UsageError
from migrator.core.paths import show
from migrator.fs.beneath import read_mounts, why_not_trusted
from migrator.fs.kinds.table import POSIX, kind_at
from migrator.fs.model import Mount, mount_of
from migrator.site.config import SECTIONS, Key, ReapSection, SectionReference, Site, SourceSection, TargetSection
from migrator.site.model import AUTO, ReapAction, needs_rsync
from migrator.site.rules_guards import mounted_volume

Name = tuple[str, ...]
Values = dict[str, Any]

_SYNTAX_PLACE = re.compile(r"^(.*?) \(at line (\d+), column (\d+)\)$", re.DOTALL)
_TYPES = {
    "str": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_TYPE = re.compile("`((?:[| ]*(?:" + "|".join(_TYPES) + "))+)`")


_LARGEST_FILE_BYTES = 1 << 20
_PATIENCE_S = 5.0


def load_site(file: Path) -> Site:
    """The site of a site.toml, with defaults filled in and absolute paths.

    Raises one UsageError that lists every mistake: unknown sections and keys, wrong types, units and choices, missing
    keys, and conflicting settings.
    """
    written = parse_site(_read(file), file)
    site = of_mounts(written, read_mounts())
    pairs = ((written.source, site.source), (written.target, site.target))
    if unclear := [bytes(one.mount) for one, found in pairs if one.kind == "auto" and found.kind == POSIX.name]:
        # A symlink leads to the mount, or the automounter has not mounted it yet.
        real = {_plain(mount): _reached(mount) for mount in unclear}
        site = of_mounts(written, read_mounts(), real=real)
    programs = [site.source.gluster if site.source.kind == "gluster" else None, site.target.beegfs]
    found = [shutil.which(program) for program in programs if program]
    for path in (file, site.site.state_dir, site.site.plans_dir, *map(Path, filter(None, found))):
        _require_trust(path)
    return site


def of_mounts(site: Site, mounts: Sequence[Mount], *, real: Mapping[bytes, bytes] | None = None) -> Site:
    """The site with `auto` replaced by the kinds of these mounts. Symlinks are not followed, as a mount may hang: `real`
    has where they lead.
    """

    def place_of(section: SourceSection | TargetSection) -> bytes:
        place = _plain(bytes(section.mount))
        return (real or {}).get(place, place)

    def changed(section: SourceSection | TargetSection) -> dict[str, str]:
        return {"kind": kind_at(mounts, place_of(section)) if section.kind == "auto" else section.kind}

    source, mount = changed(site.source), mount_of(mounts, place_of(site.source))
    if source["kind"] == "gluster" and mount is not None and site.source.volume is None:
        source["volume"] = mounted_volume(os.fsdecode(mount.source))
    return replace(site, source=replace(site.source, **source), target=replace(site.target, **changed(site.target)))


def _plain(path: bytes) -> bytes:
    return os.path.normpath(path)


def _real(path: bytes, *, mounted: bool = False) -> bytes | None:
    """The path without symlinks, if wanted after the automounter mounted it; None if its file system does not answer."""
    found: list[bytes] = []

    def resolve() -> None:
        with suppress(OSError):
            if mounted:
                os.stat(path + b"/.")
        found.append(os.path.realpath(path))

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    return found[0] if found else None


def _reached(path: bytes) -> bytes:
    if (found := _real(path, mounted=True)) is None:
        raise UsageError(
            f"the mount at {show(path)} is unknown: no answer within {_PATIENCE_S:.0f} s",
            hint="write its kind into site.toml (docs/filesystems.md), or repair the mount",
        )
    return found


def _require_trust(path: Path | str) -> None:
    """Refuse a file that other users could change: this program follows it, mostly as root."""
    with UsageError.of_files(f"{path} cannot be read"):
        problem = why_not_trusted(os.fsencode(path))
    if problem is not None:
        raise Refused(
            f"{path} is not used: {show(problem[0])} {problem[1]}",
            cause="a user who can change it can run anything as root",
            hint=problem[2],
        )


def parse_site(text: str, file: Path) -> Site:
    """As `load_site`, from text; `file` is its present or future path."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(error, text, file) from None
    except ValueError as error:
        raise UsageError(f"{file} contains a number that is too long: {error}") from None
    except RecursionError:
        raise UsageError(f"{file} is not valid TOML: its lists or tables are nested too deeply") from None
    file = Path(os.path.abspath(file))
    reading = _Reading(document, file.parent)
    if reading.mistakes:
        lines = _lines(text)
        listed = sorted((_line_of(lines, name), message) for name, message in reading.mistakes)
        count = "one mistake" if len(listed) == 1 else f"{len(listed)} mistakes"
        raise UsageError(
            "\n".join(
                [
                    f"{file} has {count}:",
                    *(f"  line {at}: {mistake}" if at else f"  {mistake}" for at, mistake in listed),
                ]
            ),
            hint="docs/configuration.md lists every section and key",
        )
    sections: Values = {one.name: one.kind(**reading.values[one.name]) for one in SECTIONS if not one.parent}
    return Site(file=file, **sections)


class _Reading:
    """One reading of a document: the valid `values` of each section by field, and the `mistakes` by the dotted name
    of their key; the empty name is the file itself.
    """

    def __init__(self, document: Mapping[str, Any], directory: Path) -> None:
        self.mistakes: list[tuple[Name, str]] = []
        self.values: dict[str, Values] = {}
        self._directory = directory
        for name, value in document.items():
            self._check_section_name(name, value)
        for section in SECTIONS:
            if section.parent:
                tables = document.get(section.parent)
                named = tables.get(section.name, {}) if isinstance(tables, dict) else {}
                self.values[section.parent][section.name] = tuple(self._named(section, named))
            else:
                self.values[section.name] = self._section(section, document)
        self.mistakes += _conflicts(self.values, document)

    def _check_section_name(self, name: str, value: object) -> None:
        known = [section.name for section in SECTIONS if not section.parent]
        if name in known:
            return
        if isinstance(value, dict):
            near = _nearest(name, known)
            self.mistakes.append(((name,), f"unknown section [{name}]" + (f"; did you mean [{near}]?" if near else "")))
        else:
            self.mistakes.append(((name,), f"{name} is outside every section{_owners(name)}"))

    def _section(self, section: SectionReference, document: Mapping[str, Any]) -> Values:
        known = [one.name for one in SECTIONS if not one.parent]
        mistyped = [_nearest(name, known) for name in document if name not in known]
        if section.required and section.name not in {*document, *mistyped}:
            self.mistakes.append(((), f"section [{section.name}] is missing"))
        table = document.get(section.name)
        if not isinstance(table, dict):
            if table is not None:
                message = f"{section.name} is a section: write [{section.name}] on a line of its own"
                self.mistakes.append(((section.name,), message))
            return {}
        below = [one.name for one in SECTIONS if one.parent == section.name]
        return self._keys(section, section.path, {name: value for name, value in table.items() if name not in below})

    def _named(self, section: SectionReference, tables: object) -> Iterator[Any]:
        for name, table in tables.items() if isinstance(tables, dict) else [("", tables)]:
            where = (*section.path, name)
            if isinstance(table, dict):
                yield section.kind(name=name, **self._keys(section, where, table))
            else:
                self.mistakes.append((where, f"[{section.parent}] {section.name}: write {section.header} sections"))

    def _keys(self, section: SectionReference, where: Name, table: Mapping[str, Any]) -> Values:
        shown = _shown(where)
        known = {key.name: key for key in section.keys}
        values = {key.field: self._directory / key.default for key in section.keys if isinstance(key.default, Path)}
        mistyped: list[str | None] = []
        for name, given in table.items():
            if (key := known.get(name)) is None:
                # A key of another section is misplaced, not mistyped, however similar a key of this one is.
                near = None if _owners(name) else _nearest(name, known)
                meant = f"; did you mean {near}?" if near else _owners(name) or f"; valid keys: {', '.join(known)}"
                self.mistakes.append(((*where, name), f"unknown key {name} in {shown}{meant}"))
                mistyped.append(_nearest(name, known))
                continue
            try:
                value = _value(key, given)
            except UsageError as error:
                hint = f" ({error.hint})" if error.hint else ""
                self.mistakes.append(((*where, name), f"{shown} {name}: {error.message}{hint}"))
            else:
                values[key.field] = self._directory / value if isinstance(value, Path) else value
        for key in section.keys:
            # A mistyped key is one mistake, not a missing key too.
            if key.required and key.name not in {*table, *mistyped}:
                self.mistakes.append((where, f"{shown} {key.name} is missing"))
        return values


def _value(key: Key, given: object) -> Any:  # noqa: ANN401
    """The value of a key. Raises UsageError with one sentence about the problem."""
    try:
        parsed = key.form.parse(msgspec.convert(given, key.form.given))
        if key.choices and parsed not in key.choices:
            near = _nearest(parsed, key.choices)
            valid = ", ".join(f'"{choice}"' for choice in key.choices)
            meant = f'; did you mean "{near}"?' if near else ""
            raise UsageError(f'"{parsed}" is not a valid value; valid values: {valid}{meant}')
        return msgspec.convert(parsed, key.type, from_attributes=True)
    except msgspec.ValidationError as error:
        mistake, _, place = str(error).partition(" - at `$")
        mistake = _TYPE.sub(lambda found: " or ".join(_TYPES[one] for one in found[1].split(" | ")), mistake)
        raise UsageError(mistake[0].lower() + mistake[1:] + (f" at {place[:-1]}" if place else "")) from None


def _conflicts(values: Mapping[str, Values], document: Mapping[str, Any]) -> Iterator[tuple[Name, str]]:
    """Settings that are valid alone and conflict together."""
    source, target = values["source"], values["target"]
    if source.get("kind") == "gluster" and "volume" not in document["source"]:
        yield ("source", "kind"), '[source] volume is missing: kind "gluster" requires it'
    if "mount" in source and "mount" in target:
        source_root = _without_symlinks(source["mount"])
        target_root = _without_symlinks(target["mount"] / target.get("path", ""))
        where = ("target", "mount")
        if source_root == target_root:
            yield where, f"source and target are the same directory: {source_root}"
        elif target_root.is_relative_to(source_root):
            yield where, f"the target lies inside the source: {target_root} is below {source_root}"
        elif source_root.is_relative_to(target_root):
            yield where, f"the source lies inside the target: {source_root} is below {target_root}"
    for key in ("beegfs", "stripe_count", "chunk_size", "layout"):
        if target.get("kind", "auto") not in ("auto", "beegfs") and document["target"].get(key):
            yield ("target", key), f'[target] {key}: only valid for a target of kind "beegfs"'
    size_bytes = target.get("chunk_size_bytes", 0)
    if size_bytes & (size_bytes - 1):
        yield ("target", "chunk_size"), '[target] chunk_size: must be a power of two, as in "1MiB"'
    transfer = values["transfer"]
    if transfer.get("rewrite_links") and needs_rsync(transfer.get("engine", AUTO)):
        yield (
            ("transfer", "rewrite_links"),
            f'[transfer] rewrite_links: engine "{transfer["engine"]}" does not rewrite symlinks',
        )
    policy = ReapSection(**values["reap"]).policy
    for names, rule in [((), policy.rule), *((("users", name), rule) for name, rule in policy.by_name.items())]:
        if rule.action is not ReapAction.LIST and not rule.matches_anything:
            shown = f'{_shown(("reap", *names))} action = "{rule.action}"'
            yield (
                ("reap", *names, "action"),
                f"{shown} requires older_than or smaller_than: without them it matches no file",
            )
            return


def _shown(section: Name) -> str:
    return "[" + ".".join(part if part.isidentifier() else f'"{part}"' for part in section) + "]"


def _nearest(word: str, known: Iterable[str]) -> str | None:
    choices = {choice.lower(): choice for choice in known}
    near = get_close_matches(word.lower(), choices, n=1, cutoff=0.6)
    return choices[near[0]] if near else None


def _owners(name: str) -> str:
    """The sections with a key of that name."""
    owners = [section.header for section in SECTIONS if any(key.name == name for key in section.keys)]
    return f"; it belongs in {' or '.join(owners)}" if owners else ""


def _lines(text: str) -> Mapping[Name, int]:
    """The line of each table header and key, from 1, by dotted name; `tomllib` does not provide it. Lines are parsed
    one by one, so a line of a multi-line text that resembles a key counts as a key.
    """
    found: dict[Name, int] = {}
    table: Name = ()
    for number, line in enumerate(text.split("\n"), 1):
        header = line.lstrip().startswith("[")
        try:
            document: Any = tomllib.loads(line.strip() if header else line.partition("=")[0] + "= 0")
        except tomllib.TOMLDecodeError:
            continue
        name = () if header else table
        while isinstance(document, dict) and document:
            part, document = next(iter(document.items()))
            name = (*name, part)
            found.setdefault(name, number)
        table = name if header else table
    return found


def _line_of(lines: Mapping[Name, int], name: Name) -> int:
    """The line of a name or of its nearest parent; 0 if there is none."""
    return next((lines[name[:length]] for length in range(len(name), 0, -1) if name[:length] in lines), 0)


def _read(file: Path) -> str:
    try:
        # Opening a FIFO, or reading a device, has no end.
        with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode) or size_bytes > _LARGEST_FILE_BYTES:
                raise UsageError(f"{file} is not a site file: it is not a regular file, or it is too large")
            return stream.read(_LARGEST_FILE_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"no site file at {file}",
            cause="the migration is not set up yet, or the command runs in another directory",
            hint="write one with `migrator init --source-mount DIR --target-mount DIR`, "
            "or name an existing one: `migrator --site FILE ...` or MIGRATOR_SITE",
        ) from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not TOML: it is not UTF-8 (byte {error.start})") from None


def _syntax_error(error: tomllib.TOMLDecodeError, text: str, file: Path) -> UsageError:
    found = _SYNTAX_PLACE.match(str(error))
    if found is None:
        # At the end of the document, tomllib gives no line.
        message, line = str(error).removesuffix(" (at end of document)"), text.count("\n") + 1
    else:
        message, line = found[1], int(found[2])
    shown = next(iter(text.split("\n")[line - 1 : line]), "").strip()
    return UsageError(
        f"{file} is not valid TOML, line {line}: {message}" + (f"\n    {shown}" if shown else ""),
        cause='strings need quotes ("10GiB"), and a key may be set only once',
    )


def _without_symlinks(path: Path) -> Path:
    """The real path, or the given path if its file system does not answer: `status` must not wait for it."""
    return Path(os.fsdecode(_real(os.fsencode(path)) or os.path.abspath(path)))
