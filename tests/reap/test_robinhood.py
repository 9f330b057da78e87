"""`reap policy`: [reap] as the scope of a Robinhood policy and back, and every condition that only one of them knows."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.entry import UserTree
from migrator.core.errors import MigratorError, Refused
from migrator.reap.model import TreeRule
from migrator.reap.robinhood import policy_text, read_policy
from migrator.site.model import ReapClock, ReapRule
from tests.support.cli_site import Site

ROOT = b"/mnt/gl"
POLICY = """
# After doc/templates of github.com/cea-hpc/robinhood at 806084c9d623: tmpfs.inc and example_cleanup.conf.
define_policy cleanup {
    scope { type != directory and tree == "/mnt/gl/home/alice" }   // one user
    status_manager = none;
    default_action = common.unlink;
}
FileClass small_files { definition { type == file and size <= 4KB } report = no; }
FileClass precious { definition { name == "*.pem" or tree == "/mnt/gl/home/alice/**/Mail" } }
cleanup_rules {
    ignore { last_mod < 1d }
    ignore_fileclass = precious;
    rule old {
        target_fileclass = small_files;
        condition { last_mod >= 90d and not (path == '/mnt/gl/home/alice/keep/*') }
    }
}
"""


def test_a_policy_with_its_rule_its_classes_and_what_it_ignores_becomes_sections_of_site_toml() -> None:
    found = tomllib.loads(read_policy(POLICY, None, ROOT))["reap"]
    own = {"older_than": f"{90 * 86400}s", "smaller_than": "4097B", "exclude": ["*.pem", "Mail", "keep/*"]}
    assert {
        key: value if key != "exclude" else sorted(value) for key, value in found["users"]["home/alice"].items()
    } == own
    assert (found["action"], found["by"], "older_than" in found) == ("list", "mtime", False)


CONDITIONS = "last_mod >= 90d and not (path == '/mnt/gl/home/alice/keep/*')"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (CONDITIONS, "last_mod > 1d and owner == bob", "owner == bob"),
        (CONDITIONS, "last_mod > 1d and last_access > 1d", "last_access > 1d"),
        (CONDITIONS, "last_mod > 1d and size > 1KB", "size > 1KB"),
        (CONDITIONS, 'last_mod > 1d and name == "*.tmp"', r"name == \*\.tmp"),
        (CONDITIONS, 'last_mod > 1d and iname != "*.pem"', r"iname != \*\.pem"),
        (CONDITIONS, 'last_mod > 1d and name != "a?"', r"name != a\?"),
        (CONDITIONS, 'last_mod > 1d and tree != "/mnt/gl/home/bob/x"', "tree != /mnt/gl/home/bob/x"),
        (CONDITIONS, "last_mod > 1d or last_access > 1d and size < 1", "mixed without parentheses"),
        (CONDITIONS, "last_mod > 1d or size < 1", "conditions of the same tree"),
        (CONDITIONS, "xattr.user.a == b (c)", "is not understood, at"),
        (CONDITIONS, "last_mod > 1 fortnight", "is not understood"),
        (CONDITIONS, f"last_mod > {'9' * 5000}d", "last_mod > 9"),
        (CONDITIONS, "(" * 3000, "nested too deeply"),
        (CONDITIONS, "fileclass == large", "fileclass large has no definition"),
        ("last_mod < 1d", "size == 0", "size != 0"),
        ("type != directory and tree", "type == symlink and tree", "type == symlink"),
        ('tree == "/mnt/gl/home/alice" }', 'tree == "/mnt/gl/home/al*" }', r"tree == ./mnt/gl/home/al\*"),
        ('tree == "/mnt/gl/home/alice" }', 'tree == "/mnt/gl/alice" }', "tree == ./mnt/gl/alice"),
        ('tree == "/mnt/gl/home/alice" }', 'tree == "/mnt/lustre/home/alice" }', "/mnt/lustre"),
        ("rule old {", "rule first { condition { last_mod > 1y } } rule old {", "has 2 rules"),
        ("rule old {", "policy old {", "has 0 rules"),
        ("target_fileclass =", "time_modifier =", "time_modifier"),
        ("# After", '%include "more.inc"\n# After', "include is not read"),
        ("FileClass precious {", "FileClass precious", "not written|begins with|no definition"),
        ("define_policy cleanup", "define_policy other", "files of any age and size"),
    ],
)
def test_conditions_unknown_to_reap_are_refused_by_name(old: str, new: str, said: str) -> None:
    assert old in POLICY
    with pytest.raises(MigratorError, match=said):
        read_policy(POLICY.replace(old, new, 1), None, ROOT)


def rule(**facts: object) -> ReapRule:
    return ReapRule(**{"hidden": True, "executables": True, "older_than_s": 86400, **facts})  # type: ignore[arg-type]


def written(*rules: ReapRule, kept: tuple[tuple[bytes, bytes], ...] = (), root: bytes = ROOT) -> str:
    trees = [UserTree(user=f"u{number}", path=b"home/u%d" % number) for number in range(len(rules))]
    found = [TreeRule(tree=tree, rule=one) for tree, one in zip(trees, rules, strict=True)]
    return policy_text(found, kept, root, "c-0001")


@pytest.mark.parametrize(
    ("facts", "kept", "said"),
    [
        ({"executables": False}, b"x", "executables = false"),
        ({"hidden": False}, b"x", "hidden = false"),
        ({"exclude": ("*.pem",)}, b"x", r"exclude \*\.pem"),
        ({"exclude": ("a/b?",)}, b"x", r"exclude a/b\?"),
        ({"exclude": ('a"b',)}, b"x", "exclude"),
        ({"older_than_s": 2**31}, b"x", "older_than"),
        ({}, b"a*", "opt-out of"),
        ({}, b"\xff", "opt-out of"),
        ({}, b"a\nb", "opt-out of"),
    ],
)
def test_conditions_unknown_to_robinhood_are_refused_by_name(facts: dict[str, object], kept: bytes, said: str) -> None:
    with pytest.raises(Refused, match=said):
        written(rule(**facts), kept=((b"home/u0", b"home/u0/" + kept),))


NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters='?[]\\"*/\0', exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn"]),
    min_size=1,
).filter(lambda name: name not in (".", "..") and "\ufffd" not in name)
RULES = st.builds(
    lambda older, smaller, by, exclude: rule(older_than_s=older, smaller_than_bytes=smaller, by=by, exclude=exclude),
    st.integers(0, 2**31 - 1),
    st.none() | st.integers(1, 2**50),
    st.sampled_from(ReapClock),
    st.lists(NAMES | st.tuples(NAMES, NAMES).map("/".join), max_size=3, unique=True).map(tuple),
)


@given(RULES, NAMES)
def test_a_scope_that_was_written_is_read_as_the_same_rule(one: ReapRule, kept: str) -> None:
    text = written(one, one, kept=((b"home/u0", f"home/u0/dir/{kept}".encode()),))
    found = tomllib.loads(read_policy(text, None, ROOT))["reap"]
    assert found["by"] == one.by.value
    for user, more in (("home/u0", [f"dir/{kept}"]), ("home/u1", [])):
        own = found["users"][user]
        assert own["older_than"] == f"{one.older_than_s}s"
        assert own.get("smaller_than") == (None if one.smaller_than_bytes is None else f"{one.smaller_than_bytes}B")
        assert own.get("exclude", []) == list(dict.fromkeys([*one.exclude, *more]))


def test_as_it_is_typed(tmp_path: Path) -> None:
    site = Site(tmp_path, tmp_path / "source", tmp_path / "target")
    (site.source / "home/ann/kept").mkdir(parents=True)
    (site.source / "home/bob").mkdir()
    (site.source / "home/ann/kept/.migrator-keep").touch()
    site.target.mkdir()
    site.write(more='[reap]\nolder_than = "1y"\nhidden = true\n')
    site.works("init")
    site.works("scan")
    site.fails(4, "reap", "policy", says=("executables = false",))
    more = '[reap]\naction = "skip"\nolder_than = "1y"\nhidden = true\nexecutables = true\n[reap.users."bob"]\naction = "list"\n'
    site.write(more=more)
    text = site.call("reap", "policy").stdout
    tree = f"{site.source}/home/ann"
    scope = f'(type == file and nlink <= 1 and tree == "{tree}" and last_mod > 31536000s and tree != "{tree}/kept")'
    assert scope in text
    assert "home/bob" not in text
    assert "default_action = none;" in text
    (tmp_path / "rbh.conf").write_text(text)
    back = json.loads(site.call("reap", "policy", str(tmp_path / "rbh.conf"), "--json").stdout)["text"]
    assert tomllib.loads(back)["reap"]["users"]["home/ann"] == {"older_than": "31536000s", "exclude": ["kept"]}
    (tmp_path / "rbh.conf").write_bytes(b"\xff")
    site.fails(2, "reap", "policy", str(tmp_path / "rbh.conf"), says=("cannot be read",))
