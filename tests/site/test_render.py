"""The commented site.toml that `init` writes."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.errors import UsageError
from migrator.site.config import SECTIONS
from migrator.site.load import parse_site
from migrator.site.render import SiteDraft, render_site
from tools.reference_pages import render_reference

FILE = Path("/etc/migrator/site.toml")

# Characters that a path may hold; surrogates stand for bytes that are no UTF-8, which TOML cannot hold.
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)


def draft(**changes: object) -> SiteDraft:
    facts: dict[str, object] = {
        "name": "one",
        "source_kind": "gluster",
        "source_mount": Path("/mnt/gl"),
        "volume": "vol1",
        "target_kind": "beegfs",
        "target_mount": Path("/mnt/beegfs"),
    }
    return SiteDraft(**(facts | changes))  # type: ignore[arg-type]


def test_what_is_written_is_read_back() -> None:
    site = parse_site(
        render_site(
            draft(
                state_dir=Path("/var/lib/migrator"),
                target_path="archive",
                trees=("home/*", "p/*"),
            )
        ),
        FILE,
    )
    assert (site.site.name, site.site.state_dir) == ("one", Path("/var/lib/migrator"))
    assert (site.source.kind, site.source.mount) == ("gluster", Path("/mnt/gl"))
    assert site.source.volume == "vol1"
    assert (site.target.kind, site.target.root) == ("beegfs", Path("/mnt/beegfs/archive"))
    assert site.users.trees == ("home/*", "p/*")
    assert (site.source.hosts, site.reap.users) == ((), ())


@given(source=NAMES, target=NAMES)
def test_any_path_is_read_back(source: str, target: str) -> None:
    text = render_site(draft(source_mount=Path("/s", source), target_mount=Path("/t", target)))
    site = parse_site(text, FILE)
    assert (site.source.mount, site.target.mount) == (Path("/s", source), Path("/t", target))


def test_a_path_that_toml_cannot_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        render_site(draft(source_mount=Path("/mnt/\udcff")))


def test_what_stands_there_as_a_comment_is_valid_too() -> None:
    """A reader takes the mark away from any line, and the file still loads."""
    head, _, rest = render_site(draft()).partition("\n\n")
    assert all(line.startswith("# ") for line in head.splitlines())
    site = parse_site(rest.replace("# ", "", 1) if rest.startswith("# ") else rest.replace("\n# ", "\n"), FILE)
    assert site.governor.max_load == 32
    assert [host.name for host in site.source.hosts] == ["NAME"]


def test_every_example_is_valid() -> None:
    """The examples in the reference, each in its section."""
    for section in SECTIONS:
        body = render_reference().split(f"## {section.header}\n")[1].split("\n## ")[0]
        for name, example in re.findall(r"^\| `(\w+)` .* Example: `(.*)`\. \|$", body, re.MULTILINE):
            document = tomllib.loads(render_site(draft()))
            table = document
            for part in (*section.path, "NAME") if section.parent else section.path:
                table = table.setdefault(part, {})
            table[name] = tomllib.loads(f"x = {example}")["x"]
            parse_site("\n".join(f"{part} = {_inline(value)}" for part, value in document.items()), FILE)


def _inline(value: object) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{" + ", ".join(f"{name} = {_inline(held)}" for name, held in value.items()) + "}"
