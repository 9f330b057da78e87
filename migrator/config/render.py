"""Writing site.toml: what `init` leaves for its reader to go through."""

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from migrator.config.keys import FORM_MEANINGS, Form, Key, Section
from migrator.config.sections import SECTIONS
from migrator.domain.errors import UsageError

DEFAULT_TREES = ("home/*",)
_WIDTH = 118


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteDraft:
    """What a new site.toml says from the start; the rest stands in it as comments, with its defaults.

    `inodes_free` is None where the target tells by itself; `volume` where the source is no Gluster.
    """

    name: str
    source_kind: str
    source_mount: Path
    target_kind: str
    target_mount: Path
    trees: tuple[str, ...] = DEFAULT_TREES
    state_dir: Path | None = None
    volume: str | None = None
    gluster: str | None = None
    target_path: str = ""
    inodes_free: int | None = None


def render_site(draft: SiteDraft) -> str:
    """The commented site.toml. Reading it gives the draft back, and defaults for everything else.

    Raises UsageError where a path cannot stand in TOML, which is text.
    """
    given: Mapping[tuple[str, str], object] = {
        ("site", "name"): draft.name,
        ("site", "state_dir"): None if draft.state_dir is None else str(draft.state_dir),
        ("source", "kind"): draft.source_kind,
        ("source", "mount"): str(draft.source_mount),
        ("source", "volume"): draft.volume,
        ("source", "gluster"): draft.gluster,
        ("target", "kind"): draft.target_kind,
        ("target", "mount"): str(draft.target_mount),
        ("target", "path"): draft.target_path or None,
        ("target", "inodes_free"): draft.inodes_free,
        ("users", "trees"): list(draft.trees),
    }
    lines = [
        "# One migration: one source, one target. Lines that begin with # show defaults and examples.",
        "# Sizes and times are in words: 10GiB, 10GB, 90d, 10min. `migrator doctor` checks all of it.",
    ]
    for section in SECTIONS:
        lines.extend(("", *_section(section, given)))
    return "\n".join(lines) + "\n"


def render_reference() -> str:
    """docs/configuration.md, from the same table that the program reads site.toml by."""
    lines = [
        "# site.toml",
        "",
        "One file describes one migration. `migrator init` writes it with comments; `migrator --site FILE` (or",
        "`MIGRATOR_SITE`) names it, `./site.toml` is the default. Every mistake in it is reported at once, with its line.",
        "This page is made from the table that the program itself reads the file by: `make docs`.",
        "",
        "## Forms",
        "",
        "| form | is |",
        "| --- | --- |",
        *(f"| {form} | {_cell(FORM_MEANINGS[form])} |" for form in Form),
    ]
    for section in SECTIONS:
        name = f'[{section.name}."NAME"]' if section.per_name else f"[{section.name}]"
        needed = " Required." if section.required else ""
        lines += ["", f"## {name}", "", section.description + needed, ""]
        lines += ["| key | form | default | |", "| --- | --- | --- | --- |"]
        lines += [_row(key) for key in section.keys]
    return "\n".join(lines) + "\n"


def _row(key: Key) -> str:
    form = " ".join([str(key.form), ", ".join(f"`{choice}`" for choice in key.choices)]).strip()
    default = "required" if key.required else f"`{key.default}`" if key.default else "none"
    text = key.description
    if key.sample:
        text += f" Example: `{key.sample}`."
    return f"| `{key.name}` | {_cell(form)} | {_cell(default)} | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _section(section: Section, given: Mapping[tuple[str, str], object]) -> Iterable[str]:
    # One that there may be several of stands there as a comment: it would name a host or a user that does not exist.
    mark = "# " if section.per_name else ""
    header = f'[{section.name}."NAME"]' if section.per_name else f"[{section.name}]"
    yield from _comment(section.description)
    yield f"{mark}{header}"
    for key in section.keys:
        choices = f" One of: {', '.join(key.choices)}." if key.choices else ""
        yield from _comment(key.description + choices)
        value = given.get((section.name, key.name))
        if value is not None:
            yield f"{key.name} = {_toml(value)}"
        else:
            yield f"# {key.name} = {key.default or key.sample}"


def _comment(text: str) -> Iterable[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="#   ")


def _toml(value: object) -> str:
    """A text, a number or a list of texts: JSON's form of these is TOML's too, but for the character 0x7f."""
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(
            f"{value!a} cannot stand in site.toml: it is not UTF-8",
            hint="mount the file system at a path that is",
        ) from None
    return text
