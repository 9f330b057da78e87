"""Reading site.toml: every mistake at once, each with its line and what was probably meant."""

import os
import re
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from migrator.config.keys import Key, Section
from migrator.config.lines import Name, key_lines, line_of
from migrator.config.sections import SECTIONS
from migrator.config.site import (
    BatchSection,
    CapacitySection,
    CutoverSection,
    DrainSection,
    GovernorSection,
    HooksSection,
    HostSection,
    ReapSection,
    ReapUserSection,
    Site,
    SiteSection,
    SlurmSection,
    SourceSection,
    TargetSection,
    TransferSection,
    UsersSection,
    VerifySection,
)
from migrator.config.values import nearest, read_value
from migrator.decide.switching import link_setting_problem
from migrator.domain.errors import UsageError
from migrator.domain.reap import ReapAction

_ANSWER_TIMEOUT_S = 5.0

_REFERENCE = "docs/configuration.md lists every section and key"
_SYNTAX_PLACE = re.compile(r"^(.*?) \(at line (\d+), column (\d+)\)$", re.DOTALL)

_REAP = ("reap",)
_ONE_OF = {"source.hosts": "a host", "reap.users": "a user"}

Named = TypeVar("Named")
Values = Mapping[str, Any]


def load_site(file: Path) -> Site:
    """The site that site.toml describes, with every default filled in. Paths come out absolute.

    Raises one UsageError that lists every mistake: unknown sections and keys, wrong types, units and choices, what is
    missing, and source and target that lie in one another.
    """
    return parse_site(_read(file), file)


def parse_site(text: str, file: Path) -> Site:
    """As `load_site`, from the text; `file` is where it lies, or would lie."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(error, text, file) from None
    file = Path(os.path.abspath(file))
    reading = _Reading(directory=file.parent, lines=key_lines(text))
    sections = {section.name: reading.section(section, document) for section in SECTIONS if not section.per_name}
    hosts = reading.named("source.hosts", HostSection, document)
    users = reading.named("reap.users", ReapUserSection, document)
    reading.unknown_sections(document)
    reading.volume(sections["source"])
    reading.nesting(sections["source"], sections["target"])
    reading.stripe(sections["target"])
    reading.link(sections["cutover"])
    reading.reap(ReapSection(users=users, **sections["reap"]))
    if reading.mistakes:
        raise _mistakes_error(reading.mistakes, file)
    return Site(
        file=file,
        site=SiteSection(**{"state_dir": file.parent / "state", **_own_dirs(file.parent), **sections["site"]}),
        source=SourceSection(hosts=hosts, **sections["source"]),
        target=TargetSection(**sections["target"]),
        users=UsersSection(**sections["users"]),
        hooks=HooksSection(**sections["hooks"]),
        batch=BatchSection(**sections["batch"]),
        transfer=TransferSection(**sections["transfer"]),
        slurm=SlurmSection(**sections["slurm"]),
        reap=ReapSection(users=users, **sections["reap"]),
        verify=VerifySection(**sections["verify"]),
        cutover=CutoverSection(**sections["cutover"]),
        drain=DrainSection(**sections["drain"]),
        capacity=CapacitySection(**sections["capacity"]),
        governor=GovernorSection(**sections["governor"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Mistake:
    line: int
    message: str


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One reading of a document, which gathers the mistakes as it goes."""

    directory: Path
    lines: Mapping[Name, int]
    mistakes: list[_Mistake] = field(default_factory=list)

    def mistake(self, name: Name, message: str) -> None:
        self.mistakes.append(_Mistake(line=line_of(self.lines, name) or 0, message=message))

    def section(self, section: Section, document: Mapping[str, object]) -> Values:
        """The values that a section sets, by the names of the dataclass's fields."""
        if section.name not in document:
            known = [known.name for known in SECTIONS]
            mistyped = any(name not in known and nearest(name, known) == section.name for name in document)
            if section.required and not mistyped:
                self.mistakes.append(_Mistake(line=0, message=f"section [{section.name}] is missing"))
            return {}
        table = document[section.name]
        if not isinstance(table, dict):
            self.mistake(section.path, f"{section.name} is a section: write [{section.name}] on a line of its own")
            return {}
        below = [other.path[-1] for other in SECTIONS if other.path[:-1] == section.path]
        return self._keys(section, section.path, {name: table[name] for name in table if name not in below})

    def named(self, name: str, kind: Callable[..., Named], document: Mapping[str, object]) -> tuple[Named, ...]:
        """What the sections of one kind say that there is one of for each name."""
        section = next(section for section in SECTIONS if section.name == name)
        parent: object = document.get(section.path[0])
        tables: object = parent.get(section.path[1], {}) if isinstance(parent, dict) else {}
        found: list[Named] = []
        for own, table in tables.items() if isinstance(tables, dict) else [("", tables)]:
            where = (*section.path, own)
            if isinstance(table, dict):
                found.append(kind(name=own, **self._keys(section, where, table)))
            else:
                self.mistake(where, f'{_ONE_OF[name]} is a section of its own: [{section.name}."NAME"]')
        return tuple(found)

    def unknown_sections(self, document: Mapping[str, object]) -> None:
        names = [section.name for section in SECTIONS if len(section.path) == 1]
        for name, value in document.items():
            if name in names:
                continue
            if isinstance(value, dict):
                near = nearest(name, names)
                self.mistake((name,), f"unknown section [{name}]" + (f"; did you mean [{near}]?" if near else ""))
            else:
                self.mistake((name,), f"{name} stands outside every section{_elsewhere(name, None)}")

    def volume(self, source: Values) -> None:
        if source.get("kind") == "gluster" and "volume" not in source and ("source", "volume") not in self.lines:
            self.mistake(("source", "kind"), '[source] volume is missing: kind "gluster" needs it')

    def nesting(self, source: Values, target: Values) -> None:
        if "mount" not in source or "mount" not in target:
            return
        source_root = _without_symlinks(source["mount"])
        target_root = _without_symlinks(target["mount"] / target.get("path", ""))
        where = ("target", "mount")
        if source_root == target_root:
            self.mistake(where, f"source and target are the same directory: {source_root}")
        elif target_root.is_relative_to(source_root):
            self.mistake(where, f"the target lies inside the source: {target_root} is below {source_root}")
        elif source_root.is_relative_to(target_root):
            self.mistake(where, f"the source lies inside the target: {source_root} is below {target_root}")

    def stripe(self, target: Values) -> None:
        """Settings that only BeeGFS has, and a size that it would refuse."""
        names = {"beegfs": "beegfs", "stripe_count": "stripe_count", "chunk_size_bytes": "chunk_size"}
        for name, key in names.items():
            if name in target and target.get("kind") == "posix":
                self.mistake(("target", key), f'[target] {key}: only a target of kind "beegfs" has it')
        size_bytes = target.get("chunk_size_bytes")
        if isinstance(size_bytes, int) and size_bytes & (size_bytes - 1):
            self.mistake(("target", "chunk_size"), '[target] chunk_size: it has to be a power of two, as in "1MiB"')

    def link(self, cutover: Values) -> None:
        if "link" in cutover and (problem := link_setting_problem(cutover["link"])):
            self.mistake(("cutover", "link"), f'[cutover] link: {problem} (as in "/home/{{user}}")')

    def reap(self, reap: ReapSection) -> None:
        """What would reap everything, and a file that no directory can hold."""
        policy = reap.policy
        rules = [((*_REAP,), policy.rule), *(((*_REAP, "users", name), rule) for name, rule in policy.by_name.items())]
        for where, rule in rules:
            if rule.action is not ReapAction.LIST and not rule.matches_anything:
                self.mistake(
                    (*where, "action"),
                    f'{_shown(where)} action = "{rule.action.value}" needs older_than or smaller_than: it would hold for '
                    "every file",
                )
                break
        if "/" in reap.keep_file or reap.keep_file in (".", ".."):
            self.mistake((*_REAP, "keep_file"), "[reap] keep_file is the name of a file, not a path")

    def _keys(self, section: Section, where: Name, table: Mapping[str, object]) -> Values:
        known = {key.name: key for key in section.keys}
        values: dict[str, Any] = {}
        for name, given in table.items():
            key = known.get(name)
            if key is None:
                self._unknown_key(section, where, name)
                continue
            try:
                values[key.field or key.name] = read_value(key, given, self.directory)
            except UsageError as error:
                hint = f" ({error.hint})" if error.hint else ""
                self.mistake((*where, name), f"{_shown(where)} {name}: {error.message}{hint}")
        # A key that is only mistyped is one mistake, not two.
        mistyped = {nearest(name, known) for name in table if name not in known}
        for key in section.keys:
            if key.required and key.name not in table and key.name not in mistyped:
                self.mistake(where, f"{_shown(where)} {key.name} is missing{_example(key)}")
        return values

    def _unknown_key(self, section: Section, where: Name, name: str) -> None:
        # A name that is a key elsewhere is no slip of the keyboard, however near another key is.
        near = None if _owners(name, section) else nearest(name, (key.name for key in section.keys))
        meant = f"; did you mean {near}?" if near else _elsewhere(name, section)
        self.mistake((*where, name), f"unknown key {name} in {_shown(where)}{meant}")


def _own_dirs(directory: Path) -> Values:
    return {"plans_dir": directory / "plans", "hooks_dir": directory / "hooks"}


def _shown(where: Name) -> str:
    plain = [part if part.isidentifier() else f'"{part}"' for part in where]
    return f"[{'.'.join(plain)}]"


def _example(key: Key) -> str:
    return f", as in {key.name} = {key.sample}" if key.sample else ""


def _owners(name: str, here: Section | None) -> list[Section]:
    return [section for section in SECTIONS if section is not here and any(key.name == name for key in section.keys)]


def _elsewhere(name: str, here: Section | None) -> str:
    """Where a key of that name belongs; what can be said when it does not belong anywhere."""
    if owners := _owners(name, here):
        names = (f'[{section.name}."NAME"]' if section.per_name else f"[{section.name}]" for section in owners)
        return f"; it belongs in {' or '.join(names)}"
    if here is None:
        return ""
    return f"; valid keys: {', '.join(key.name for key in here.keys)}"


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"there is no site file at {file}",
            cause="the migration is not set up yet, or this is not its directory",
            hint="write one with `migrator init --source-mount DIR --target-mount DIR`, "
            "or name yours: `migrator --site FILE ...` or MIGRATOR_SITE",
        ) from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is no TOML: it is not UTF-8 (byte {error.start})") from None


def _syntax_error(error: tomllib.TOMLDecodeError, text: str, file: Path) -> UsageError:
    found = _SYNTAX_PLACE.match(str(error))
    if found is None:
        # At the end of the document, tomllib gives no line.
        message, line = str(error).removesuffix(" (at end of document)"), text.count("\n") + 1
    else:
        message, line = found[1], int(found[2])
    shown = next(iter(text.split("\n")[line - 1 : line]), "").strip()
    return UsageError(
        f"{file} is no valid TOML, line {line}: {message}" + (f"\n    {shown}" if shown else ""),
        cause='texts need quotes ("10GiB"), and every key stands once',
    )


def _mistakes_error(mistakes: Iterable[_Mistake], file: Path) -> UsageError:
    listed = [
        f"  line {mistake.line}: {mistake.message}" if mistake.line else f"  {mistake.message}"
        for mistake in sorted(mistakes)
    ]
    count = "one mistake" if len(listed) == 1 else f"{len(listed)} mistakes"
    return UsageError("\n".join([f"{file} has {count}:", *listed]), hint=_REFERENCE)


def _without_symlinks(path: Path) -> Path:
    """The real path; the path as it is given where its file system does not answer: `status` must not wait for it."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(os.path.realpath(path)), daemon=True)
    thread.start()
    thread.join(_ANSWER_TIMEOUT_S)
    return Path(found[0] if found else os.path.abspath(path))
