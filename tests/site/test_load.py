"""site.toml: read, its quantities, and the commented one that `init` writes."""

import json
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.beegfs.model import LayoutRule, StripeSettings
from migrator.core.errors import ExitCode, UsageError
from migrator.core.windows import Window
from migrator.site import quantities
from migrator.site.config import SECTIONS, HostSection, SectionReference, WriterSection
from migrator.site.load import load_site, parse_site
from migrator.site.model import ReapAction, ReapRule
from migrator.site.render import SiteDraft, render_site
from tools.reference_pages import render_reference

FILE = Path("/etc/migrator/site.toml")

MINIMAL = """\
[site]
name = "one"
[source]
kind = "posix"
mount = "/mnt/source"
[target]
kind = "posix"
mount = "/mnt/target"
[users]
trees = ["home/*"]
"""


def mistakes_of(text: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        parse_site(text, FILE)
    assert caught.value.exit_code is ExitCode.USAGE
    head, *listed = caught.value.message.split("\n")
    assert head.startswith(str(FILE))
    return [line.strip() for line in listed]


def test_relative_paths_are_beside_the_file_and_hosts_have_sections() -> None:
    text = MINIMAL.replace('name = "one"', 'name = "one"\nhooks_dir = "../hooks"').replace(
        '"/mnt/target"', '"/mnt"\npath = "new/"'
    )
    text += '[source.hosts."gl1"]\nssh = "root@gl1"\ntarget = "/mnt/beegfs"\noptions = ["-p", "2222"]\n'
    text += "[source.hosts.gl2]\n"
    text += '[target.hosts."bg[1-2]"]\nssh = "root@%h"\ntarget = "/beegfs"\n'
    site = parse_site(text, FILE)
    assert (site.site.plans_dir, site.site.hooks_dir) == (Path("/etc/migrator/plans"), Path("/etc/migrator/../hooks"))
    assert site.ledger_file == Path("/etc/migrator/state/ledger.db")
    assert site.target.root == Path("/mnt/new")
    assert site.source.hosts == (
        HostSection(name="gl1", ssh="root@gl1", target=Path("/mnt/beegfs"), options=("-p", "2222")),
        HostSection(name="gl2"),
    )
    assert site.target.hosts == (WriterSection(name="bg[1-2]", ssh="root@%h", target=Path("/beegfs")),)
    assert not site.reap.policy.rule.matches_anything


def test_owners_are_a_table_in_one_line_or_a_section() -> None:
    users = parse_site(MINIMAL + "[users.uid_map]\n1000 = 2000\n[users.gid_map]\n7 = 8\n8 = 7\n", FILE).users
    assert (
        users
        == parse_site(
            MINIMAL.replace("[users]", "[users]\nuid_map = { 1000 = 2000 }\ngid_map = { 7 = 8, 8 = 7 }"), FILE
        ).users
    )
    assert (users.owners.uid(1000), users.owners.gid(7), users.owners.gid(1000)) == (2000, 8, 1000)


def test_windows_may_be_tables_with_limits_of_their_own_and_texts_beside_them() -> None:
    windows = (
        Window(days=(0, 1, 2, 3, 4), start_minute=19 * 60, end_minute=7 * 60),
        Window(days=(5, 6), start_minute=0, end_minute=1440, jobs=2, bwlimit_bytes_per_s=50 * 1024**2),
    )
    as_tables = """
[[transfer.windows]]
when = "Mon-Fri 19:00-07:00"
[[transfer.windows]]
when = "Sat,Sun 00:00-24:00"
jobs = 2
bwlimit = "50MiB/s"
"""
    inline = """
[transfer]
windows = ["Mon-Fri 19:00-07:00", { when = "Sat,Sun 00:00-24:00", jobs = 2, bwlimit = "50MiB/s" }]
"""
    for text in (as_tables, inline):
        assert parse_site(MINIMAL + text, FILE).transfer.windows == windows


def test_layouts_are_rules_in_their_order_and_the_keys_of_the_target_the_last() -> None:
    text = (
        MINIMAL.replace('"posix"\nmount = "/mnt/target"', '"beegfs"\nmount = "/mnt/target"\nstripe_count = 4')
        + """
[[target.layout]]
trees = ["home/*"]
larger_than = "1GiB"
stripe_count = 8
chunk_size = "1MiB"
[[target.layout]]
pool = "fast"
"""
    )
    assert parse_site(text, FILE).target.layout_rules == (
        LayoutRule(trees=("home/*",), larger_than_bytes=1 << 30, stripe=StripeSettings(targets=8, chunk_bytes=1 << 20)),
        LayoutRule(stripe=StripeSettings(pool="fast")),
        LayoutRule(stripe=StripeSettings(targets=4)),
    )


@pytest.mark.parametrize(
    ("replaced", "by", "said"),
    [
        ('trees = ["home/*"]', 'trees = "home/*"', "expected a list, got text in quotes"),
        ("[site]", "jobs = 4\n[site]", 'line 1: jobs is outside every section; it belongs in [source.hosts."NAME"] or [transfer] or [slurm]'),
        ('name = "one"', 'name = "a/b"', "is not a name"),
        ("[target]", "hosts = 3\n[target]", 'line 6: [source] hosts: write [source.hosts."NAME"] sections'),
        ("[target]", '[source.hosts."gl1"]\nsshh = "x"\n[target]', "line 7: unknown key sshh in [source.hosts.gl1]; did you mean ssh?"),
        ("[site]\nname", "site = 3\n[x]\nname", "line 1: site is a section: write [site] on a line of its own"),
        ("[users]", '[reap]\nolder_than = "1500ms"\n[users]', "not a whole number of seconds"),
        ("[users]", "[verify]\nsample = 1979-05-27\n[users]", "got `date`"),
        ("[users]", '[reap]\naction = "skip"\n[users]', '[reap] action = "skip" requires older_than or smaller_than'),
        ("[users]", '[reap.users."alice"]\naction = "archive"\n[users]', '[reap.users.alice] action = "archive" requires older_than'),
        (
            "[users]",
            '[reap]\naction = "skip"\nolder_than = "2y"\n[reap.users."alice"]\nolder_than = "0s"\n[users]',
            '[reap.users.alice] action = "skip" requires older_than',
        ),
        ("[users]", "[reap]\nusers = 3\n[users]", '[reap] users: write [reap.users."NAME"] sections'),
        ("[users]", '[cutover]\nlink = "home/{user}"\n[users]', "not absolute"),
        ("[users]", '[cutover]\nlink = "/home/../{user}"\n[users]', "empty component"),
        ("[users]", '[cutover]\nlink = "/home/{batch}/{user}"\n[users]', "only the fields"),
        ("[users]", '[cutover]\nlink = "/ho\\nme/{user}"\n[users]', "non-printable"),
        ("[users]", "[transfer]\nwindows = [{ jobs = 2 }]\n[users]", "line 10: [transfer] windows: object missing required field `when`"),
        ("[users]", '[transfer]\nwindows = [{ when = "Mon 07:00-08:00", job = 2 }]\n[users]', "unknown field `job`"),
        ("[users]", '[transfer]\nwindows = [{ when = "Mon 07:00-08:00", jobs = 0 }]\n[users]', "a whole number >= 1 at [0].jobs"),
        ("[users]", '[transfer]\nwindows = [{ when = "Mon 07:00-08:00", bwlimit = 0 }]\n[users]', "at least 1 byte per second"),
        ("[users]", '[transfer]\nwindows = [{ when = "Mon 7-8" }]\n[users]', "is not a window"),
        ("[users]", '[[target.layout]]\npool = "fast"\n[users]', 'layout: only valid for a target of kind "beegfs'),
        ("[users]", '[[target.layout]]\nlarger_than = "1GiB"\n[users]', "a layout requires stripe_count, chunk_size or pool"),
        ("[users]", '[[target.layout]]\nchunk_size = "3MiB"\n[users]', "a power of two"),
        ("[users]", '[[target.layout]]\npol = "fast"\n[users]', "unknown field `pol`"),
        ("[users]", "[transfer]\nwindows = [7]\n[users]", "expected text in quotes or a table, got a whole number"),
        ("[users]", "[users]\nuid_map = { 1000 = 5, 1001 = 5 }", "line 10: [users] uid_map: 1000 and 1001 would both be 5"),
        ("[users]", "[users]\nuid_map = { 0 = 5 }", '"0" is not the number of a user or group other than root'),
        ("[users]", "[users]\ngid_map = { 5 = 0 }", '"0" is not the number'),
        ("[users]", "[users]\ngid_map = { 05 = 7 }", '"05" is not the number'),
        ("[users]", "[users]\ngid_map = { staff = 7 }", '"staff" is not the number'),
        ("[users]", "[users]\nuid_map = { 1 = 4294967295 }", '"4294967295" is not the number'),
        ("[users]", "[users]\nuid_map = { 1 = true }", "expected a whole number"),
        ("[users]", "[users]\nuid_map = { " + ", ".join(f"{one} = {one}" for one in range(1, 5002)) + " }", "may have 5000"),
        ('"/mnt/target"', '"/mnt/source/../source/"', "line 8: source and target are the same directory: /mnt/source"),
        ('"/mnt/target"', '"/mnt"\npath = "source/x"', "line 8: the target lies inside the source"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_line_and_says_what_was_meant(replaced: str, by: str, said: str) -> None:
    assert replaced in MINIMAL
    assert any(said in mistake for mistake in mistakes_of(MINIMAL.replace(replaced, by, 1)))


def test_beside_one_another_below_one_mount_is_no_nesting() -> None:
    site = parse_site(MINIMAL.replace('"/mnt/target"', '"/mnt"\npath = "source2"'), FILE)
    assert site.target.root == Path("/mnt/source2")


def test_lines_are_right_beside_lists_over_several_lines_and_quoted_names() -> None:
    text = MINIMAL.replace('["home/*"]', '[\n  "home/*",  # a = "b"\n]').replace("[users]\n", "[ users ]\n\n")
    text += 'map = 1\n[source.hosts."gl.1"]\nssh = """\nx"""\njobs = 0\n[reap]\nusers.alice.by = 1\n'
    assert [mistake.partition(": ")[0] for mistake in mistakes_of(text)] == [f"line {line}" for line in (14, 18, 20)]


ODD_VALUES = ("-1", "1" * 400, "nan", "[{}]", "1979-05-27", '"a\\u0000b"', '"9999999999999y"', "{a = 1}")


@pytest.mark.parametrize("value", ODD_VALUES)
def test_no_value_of_any_key_ends_in_anything_but_mistakes(value: str) -> None:
    """With Windows line ends too, a mistake has its line."""
    for section in SECTIONS:
        for key in section.keys:
            mistakes = mistakes_of(f"{section.header}\r\n{key.name} = {value}\r\nzzz = 1\r\n")
            assert any(mistake.startswith("line 3: unknown key zzz in [") for mistake in mistakes)


def test_unreadable_site_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_site(tmp_path)
    (tmp_path / "site.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_site(tmp_path / "site.toml")


def test_a_target_that_reaches_the_source_through_a_symlink_is_inside_it(tmp_path: Path) -> None:
    (tmp_path / "source" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "source")
    (tmp_path / "site.toml").write_text(
        MINIMAL.replace("/mnt/source", "source").replace("/mnt/target", "link/below"), encoding="utf-8"
    )
    with pytest.raises(UsageError, match="line 8: the target lies inside the source"):
        load_site(tmp_path / "site.toml")


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_defaults_are_valid_as_they_are_documented(section: SectionReference) -> None:
    bare = MINIMAL.replace('kind = "posix"\n', "")
    minimal = parse_site(bare, FILE)
    for key in section.keys:
        if key.default_in_toml and not section.parent:
            text = bare if section.header in bare else f"{bare}{section.header}\n"
            text = text.replace(section.header, f"{section.header}\n{key.name} = {key.default_in_toml}")
            default = getattr(getattr(minimal, section.name), key.field)
            assert default == getattr(getattr(parse_site(text, FILE), section.name), key.field), key.name


def test_rules_of_single_users_are_filled_up_from_the_others() -> None:
    text = (
        MINIMAL
        + """
[reap]
action = "archive"
older_than = "1y"
exclude = ["*.pem"]
[reap.users."alice"]
action = "list"
smaller_than = "1KiB"
exclude = []
[reap.users."home/b"]
smaller_than = "2KiB"
[reap.users."carol"]
older_than = "0s"
smaller_than = "3KiB"
"""
    )
    policy = parse_site(text, FILE).reap.policy
    assert policy.rule == ReapRule(action=ReapAction.ARCHIVE, older_than_s=365 * 86400, exclude=("*.pem",))
    assert policy.by_name == {
        "alice": ReapRule(action=ReapAction.LIST, older_than_s=365 * 86400, smaller_than_bytes=1024),
        "home/b": replace(policy.rule, smaller_than_bytes=2048),
        "carol": replace(policy.rule, older_than_s=None, smaller_than_bytes=3072),
    }


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        *((quantities.parse_size, f"1{unit}", factor) for unit, factor in quantities.SIZE_UNITS.items()),
        *((quantities.parse_duration, f"1{unit}", float(each)) for unit, each in quantities.DURATION_UNITS.items()),
        (quantities.parse_size, "10G", 10 * 2**30),
        (quantities.parse_size, 4096, 4096),
        (quantities.parse_size, " 1.5 TiB ", 3 * 2**39),
        (quantities.parse_size, "1.0001K", 1024),
        (quantities.parse_duration, "1.5 h", 5400),
        (quantities.parse_rate, "200MiB/s", 200 * 2**20),
        (quantities.parse_rate, "200MiB", 200 * 2**20),
        (quantities.parse_growth, "7GiB/w", 2**30),
        (quantities.parse_growth, "1GiB", 2**30),
        (quantities.parse_share, 1, 1.0),
        (quantities.parse_share, "5%", 0.05),
        (quantities.parse_share, "0.5", 0.5),
    ],
)
def test_quantities(parse: Callable[[str | float], float], text: str | float, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        *((quantities.parse_size, text, "size") for text in ("", "GiB", "-1GiB", "1,5GiB", "٣GiB", "1" * 40, -1)),
        (quantities.parse_size, "10GX", 'unknown size unit "GX"; valid units: B, KiB, .*PB.* "G" is the'),
        (quantities.parse_duration, "10m", '"min" is the nearest'),
        (quantities.parse_duration, "30", "has no unit"),
        (quantities.parse_duration, "soon", "is not a duration"),
        (quantities.parse_rate, "200MiB/min", "is not a size"),
        (quantities.parse_growth, "1GiB/s", "unknown growth unit"),
        *((quantities.parse_share, text, "share") for text in ("", "101%", 1.01, -0.1, "half", float("nan"))),
    ],
)
def test_invalid_quantities_are_refused(parse: Callable[[str | float], float], text: str | float, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(text)


@given(st.text(max_size=12))
def test_no_text_gives_anything_but_a_size_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert quantities.parse_size(text) >= 0


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


def test_quantities_are_read_back_as_written() -> None:
    written = draft(state_dir=Path("/var/lib/migrator"), target_path="archive", trees=("home/*", "p/*"))
    site = parse_site(render_site(written), FILE)
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


def test_commented_lines_are_valid() -> None:
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
