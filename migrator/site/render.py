"""Writing site.toml for `init`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, to_builtins

from migrator.core.descriptions import descriptions
from migrator.core.errors import UsageError
from migrator.site import config as site
from migrator.site.config import SECTIONS, Key
from migrator.site.model import Setting

DEFAULT_TREES = ("home/*",)
_EXAMPLE = re.compile(r"\s*Example:\s+`(.*)`\.$")
_FIRST: Mapping[str, tuple[str, ...]] = {
    "site": ("name", "state_dir"),
    "source": ("kind", "mount", "volume", "gluster"),
    "source.hosts": ("ssh", "target"),
    "target": ("kind", "mount", "path"),
    "users": ("trees", "map", "exclude"),
    "transfer": ("jobs", "bwlimit", "windows"),
    "governor": ("max_latency", "max_load"),
    "reap": ("action", "older_than", "smaller_than"),
    "cutover": ("link", "max_freeze", "retain"),
    "drain": ("throttle",),
    "capacity": ("growth",),
}
"""Keys that the operator of every site must review: `init` writes these."""


class SiteDraft(Struct, frozen=True, kw_only=True):
    """The settings of a new site.toml. `volume` is None if the source is not Gluster."""

    name: str
    source_kind: str
    source_mount: Path
    target_kind: str
    target_mount: Path
    trees: tuple[str, ...] = DEFAULT_TREES
    state_dir: Path | None = None
    volume: str | None = None
    target_path: str = ""


def render_site(draft: SiteDraft) -> str:
    """The commented site.toml. Parsing it returns the draft, with defaults for all else.

    Raises UsageError for a path that is not text, which TOML cannot hold.
    """
    given: Mapping[tuple[str, str], object] = {
        ("site", "name"): draft.name,
        ("site", "state_dir"): None if draft.state_dir is None else str(draft.state_dir),
        ("source", "kind"): draft.source_kind,
        ("source", "mount"): str(draft.source_mount),
        ("source", "volume"): draft.volume,
        ("target", "kind"): draft.target_kind,
        ("target", "mount"): str(draft.target_mount),
        ("target", "path"): draft.target_path or None,
        ("users", "trees"): list(draft.trees),
    }
    lines = [
        "# One migration: one source, one target. Commented lines show defaults and examples.",
        "# docs/configuration.md has these keys and all others; `migrator doctor` checks them.",
    ]
    texts = descriptions(site)
    for section in SECTIONS:
        # Examples of hosts and users stay comments: those do not exist.
        header = f"# {section.header}" if section.parent else section.header
        keys = [(key, given.get((section.name, key.name))) for key in section.keys]
        chosen = [
            (key, value)
            for key, value in keys
            if value is not None or key.name in _FIRST.get(".".join(section.path), ())
        ]
        if chosen:
            lines += ["", f"{header}  # {_first_sentence(texts[section.kind.__name__])}"]
        for key, value in chosen:
            text, example = split_example(texts[f"{section.kind.__name__}.{key.field}"])
            unset = f"# {key.name} = {example or key.default_in_toml}"
            setting = unset if value is None else f"{key.name} = {_toml(value)}"
            lines.append(f"{setting}  # {_first_sentence(text)}")
    return "\n".join(lines) + "\n"


def settings_of(given: site.Site) -> tuple[Setting, ...]:
    """Every key, in the order of the documentation; those of named sections once for each name."""
    texts = descriptions(site)
    found: list[Setting] = []
    for section in SECTIONS:
        if section.parent:
            named = getattr(getattr(given, section.parent), section.name)
            places = [(f"[{section.parent}.{section.name}.{json.dumps(one.name)}]", one) for one in named]
        else:
            places = [(section.header, getattr(given, section.name))]
        for header, values in places:
            for key in section.keys:
                value = getattr(values, key.field)
                found.append(
                    Setting(
                        section=header,
                        key=key.name,
                        value=None if value is None else _written(key, value),
                        is_default=not key.required and value in (key.default, given.file.parent / str(key.default)),
                        meaning=_first_sentence(split_example(texts[f"{section.kind.__name__}.{key.field}"])[0]),
                    )
                )
    return tuple(found)


def _written(key: Key, value: object) -> str:
    return _toml(to_builtins(key.form.write(value)))


def split_example(description: str) -> tuple[str, str]:
    """The description, and its example in TOML or an empty text."""
    found = _EXAMPLE.search(description)
    return (description[: found.start()], found[1]) if found else (description, "")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) (?=[A-Z`])", text)[0]


def _toml(value: object) -> str:
    """A text, a number, a list of texts or a table of numbers: JSON notation is valid TOML for the values of these, except
    for the character 0x7f.
    """
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(one)}' for key, one in value.items())} }}" if value else "{}"
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(
            f"{value!a} cannot be written to site.toml: it is not UTF-8",
            hint="mount the file system at a path that is",
        ) from None
    return text
