"""`reap policy`: the rules of [reap] as the scope of a Robinhood policy, and a scope as [reap]. Pure.

A wider scope would delete files that are to be kept. So each condition must mean the same on both sides, or less; all
others are refused by name. By the sources of Robinhood 3 (github.com/cea-hpc/robinhood: src/cfg_parsing/conf_lex.l,
conf_yacc.y and rbh_boolexpr.c, src/policies/policy_matching.c): `and` and `or` have no precedence, durations are
32-bit seconds, and `tree` and `path` take no `*` beside a `**`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.errors import Refused, UsageError
from migrator.core.paths import is_beneath, show
from migrator.core.units import DAY_S
from migrator.reap.model import TreeRule
from migrator.site.model import ReapClock, ReapRule

POLICY = "migrator_reap"
_MAX_S = 2**31 - 1
_MOST = 1000
"""Alternatives of one scope."""
_CLOCKS = {"last_mod": ReapClock.MTIME, "last_access": ReapClock.ATIME}
_SPECIAL = re.compile(rb'[?\[\]\\"*\x00-\x1f\x7f]')
_IN_GLOB = re.compile(rb'[?\[\]\\"\x00-\x1f\x7f]')
"""`?` and brackets match bytes here, and characters there."""


# --- [reap] as a scope


def policy_text(rules: Sequence[TreeRule], kept: Sequence[tuple[bytes, bytes]], root: bytes, catalog: str) -> str:
    """The policy. `kept` are the trees and directories with an opt-out file in the catalog, `root` is the source's. Raises
    Refused with all that Robinhood has no condition for.
    """
    problems: list[str] = []
    scopes = [_scope(one, [path for tree, path in kept if tree == one.tree.path], root, problems) for one in rules]
    if problems:
        raise Refused(
            f"[reap] cannot be written as a policy of Robinhood: {'; '.join(dict.fromkeys(problems))}",
            cause="without these conditions the policy would take more files",
            hint="change [reap], or give Robinhood the files of `migrator reap list --csv`",
        )
    alternatives = "\n        or ".join(f"({' and '.join(scope)})" for scope in scopes)
    return (
        f"# From [reap] of migrator and its catalog {catalog}: opt-out files that came later are not in it.\n"
        f"define_policy {POLICY} {{\n    scope {{\n        {alternatives}\n    }}\n    status_manager = none;\n"
        "    # Give it an action when `rbh-find` and a dry run show the right files.\n    default_action = none;\n"
        "    default_lru_sort_attr = last_access;\n}\n"
    )


def _scope(one: TreeRule, kept: Sequence[bytes], root: bytes, problems: list[str]) -> list[str]:
    rule, tree = one.rule, root + b"/" + one.tree.path
    terms = ["type == file", "nlink <= 1", f'tree == "{_quoted(tree, "the tree", _SPECIAL, problems)}"']
    if not rule.executables:
        problems.append("executables = false (it knows no modes)")
    if rule.older_than_s is not None:
        if rule.older_than_s > _MAX_S:
            problems.append(f"older_than of {rule.older_than_s} s")
        clock = next(name for name, by in _CLOCKS.items() if by is rule.by)
        terms.append(f"{clock} > {rule.older_than_s}s")
        if (
            rule.by is ReapClock.ATIME
        ):  # with `last_access_only_atime` Robinhood would take files that were written since
            terms.append(f"last_mod > {rule.older_than_s}s")
    if rule.smaller_than_bytes is not None:
        terms.append(f"size < {rule.smaller_than_bytes}")
    if not rule.hidden:
        problems.append("hidden = false (it has no names with a `*` at any depth)")
    for glob in rule.exclude:
        name = glob.encode("utf-8", "surrogateescape").rstrip(b"/")
        words = _quoted(name, "exclude", _IN_GLOB if b"/" in name else _SPECIAL, problems)
        path = tree.decode("utf-8", "replace")
        # A glob without a slash is a name anywhere.
        terms += [f'tree != "{path}/{words}"', *([] if "/" in words else [f'tree != "{path}/**/{words}"'])]
    terms += [f'tree != "{_quoted(root + b"/" + path, "the opt-out of", _SPECIAL, problems)}"' for path in kept]
    return terms


def _quoted(name: bytes, what: str, special: re.Pattern[bytes], problems: list[str]) -> str:
    text = name.decode("utf-8", "replace")
    if special.search(name) or "\ufffd" in text or b"**" in name:
        problems.append(f"{what} {show(name)}")
    return text


# --- A scope as [reap]


Node = tuple[str, Any]
"""`("and", nodes)`, `("or", nodes)`, `("not", node)`, `("test", (attribute, operator, value))`."""
Test = tuple[str, str, str]

_TOKEN = re.compile(
    r'\s+|#.*|//.*|"(?P<quoted>(?:[^"\\\n]|\\.)*)"|\'(?P<plain>[^\'\n]*)\''
    r"|(?P<mark>==|!=|<>|>=|<=|[<>={}();,])|(?P<word>[^\s\"'#(),;=<>!{}]+)"
)
_OPPOSITE = {"==": "!=", "!=": "==", ">": "<=", "<=": ">", "<": ">=", ">=": "<"}
_DURATION_S = {
    **dict.fromkeys(("", "s", "sec"), 1), **dict.fromkeys(("m", "min"), 60), **dict.fromkeys(("h", "hour"), 3600),
    **dict.fromkeys(("d", "day"), DAY_S), **dict.fromkeys(("w", "week"), 7 * DAY_S), **dict.fromkeys(("y", "year"), 365 * DAY_S),
}  # fmt: skip
_SIZE_BYTES = {
    "": 1,
    "b": 1,
    **{letter + end: 1 << 10 * power for power, letter in enumerate("kmgtpe", 1) for end in ("", "b")},
}


class _Block(Struct, frozen=True, kw_only=True):
    """A block of the file: its kind, its name, its assignments, the blocks in it, and all its tokens."""

    kind: str
    name: str
    values: tuple[tuple[str, str], ...]
    blocks: "tuple[_Block, ...]"
    tokens: tuple[str, ...]


def read_policy(text: str, policy: str | None, root: bytes) -> str:
    """The sections of site.toml for the files that a policy takes. Raises UsageError for text that is no policy, Refused
    for what [reap] cannot express.
    """
    try:
        return _as_reap(list(_blocks(_tokens(text))), policy, root)
    except RecursionError:
        raise UsageError("the blocks or conditions of the file are nested too deeply") from None


def _as_reap(blocks: Sequence[_Block], policy: str | None, root: bytes) -> str:
    policies = [one for one in blocks if one.kind == "define_policy" and policy in (None, one.name)]
    if len(policies) != 1:
        names = ", ".join(one.name for one in policies) or "none"
        raise UsageError(f"the file must define the one policy to read, and has {names}", hint="name it with --policy")
    tests = _alternatives(_effective(policies[0], blocks), negated=False)
    problems: list[str] = []
    found = [_rule(one, root, problems) for one in tests]
    trees = [tree for tree, _ in found]
    if len(set(trees)) < len(trees) or (len(trees) > 1 and None in trees):
        problems.append("`or` between conditions of the same tree")
    if len({rule.by for _, rule in found if rule.older_than_s is not None}) > 1:
        problems.append("last_mod and last_access together")
    if problems or not found:
        raise Refused(
            f"policy {policies[0].name} cannot be written as [reap]: {'; '.join(dict.fromkeys(problems)) or 'it is empty'}",
            cause="without these conditions [reap] would take more files, or none",
            hint="take them out of a copy of the policy if that is meant",
        )
    return _toml(found, policies[0].name)


def _tokens(text: str) -> list[str]:
    """Words, marks, and quoted text after a `"`."""
    found, place = [], 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            line = text.count("\n", 0, place) + 1
            raise UsageError(f"line {line} is not written as Robinhood's configuration is")
        place = match.end()
        if match["quoted"] is not None:
            found.append('"' + re.sub(r"\\(.)", r"\1", match["quoted"]))
        elif match["plain"] is not None:
            found.append('"' + match["plain"])
        elif match["mark"] or match["word"]:
            found.append(match["mark"] or match["word"])
    return found


def _blocks(tokens: Sequence[str]) -> Iterator[_Block]:
    """The blocks of a file, or in a block. Names of blocks are without case."""
    start = 0
    for place, token in enumerate(tokens):
        if place < start:
            continue
        if token.startswith("%"):
            raise UsageError(
                "%include is not read", hint="put the policy with its rules and file classes into one file"
            )
        if token == ";":
            start = place + 1
        elif token == "{":
            end = _closing(tokens, place)
            head, body = tokens[start:place], tokens[place + 1 : end]
            if not 1 <= len(head) <= 2:
                raise UsageError(f"a block begins with {' '.join(head)!r}")
            inner = () if head[0].lower() in _EXPRESSIONS else tuple(_blocks(body))
            values = () if head[0].lower() in _EXPRESSIONS else tuple(_values(body))
            name = head[1] if head[1:] else ""
            yield _Block(kind=head[0].lower(), name=name, values=values, blocks=inner, tokens=tuple(body))
            start = end + 1


_EXPRESSIONS = ("scope", "definition", "condition", "ignore", "whitelist")


def _values(body: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The assignments of a block, without those of the blocks in it."""
    depth = 0
    for place, token in enumerate(body):
        depth += (token == "{") - (token == "}")
        if token == "=" and depth == 0 and 0 < place < len(body) - 1:
            yield body[place - 1].lower(), body[place + 1].removeprefix('"')


def _closing(tokens: Sequence[str], place: int) -> int:
    depth = 0
    for end in range(place, len(tokens)):
        depth += (tokens[end] == "{") - (tokens[end] == "}")
        if depth == 0:
            return end
    raise UsageError("a block is not closed")


def _effective(policy: _Block, blocks: Sequence[_Block]) -> Node:
    """Scope, and rules if the file has them: one rule, since of several the first whose class fits counts."""
    classes = {one.name.lower(): one for one in blocks if one.kind == "fileclass"}
    parts = [_parsed(one.tokens, classes) for one in policy.blocks if one.kind == "scope"]
    if not parts:
        raise UsageError(f"policy {policy.name} has no scope")
    for section in (one for one in blocks if one.kind == f"{policy.name.lower()}_rules"):
        rules = [one for one in section.blocks if one.kind == "rule"]
        if len(rules) != 1:
            raise Refused(f"{section.kind} has {len(rules)} rules: [reap] has one", hint="read a copy with one of them")
        own = {name for name, _ in rules[0].values}
        ignored = [_parsed(one.tokens, classes) for one in section.blocks if one.kind in ("ignore", "whitelist")]
        of_class = ("ignore_fileclass", "whitelist_fileclass")
        ignored += [_class(value, classes) for name, value in section.values if name in of_class]
        parts += [("not", one) for one in ignored]
        if targets := [_class(value, classes) for name, value in rules[0].values if name == "target_fileclass"]:
            parts.append(("or", targets))
        parts += [_parsed(one.tokens, classes) for one in rules[0].blocks if one.kind == "condition"]
        if (
            own - {"target_fileclass", "condition", "action", "action_params"}
            or ("condition", "false") in rules[0].values
        ):
            raise Refused(f"the rule {rules[0].name} has {', '.join(sorted(own))}: these are not read")
    return ("and", parts)


def _class(name: str, classes: Mapping[str, _Block]) -> Node:
    known = classes.get(name.lower())
    definitions = [one for one in known.blocks if one.kind == "definition"] if known else []
    if len(definitions) != 1:
        raise Refused(f"fileclass {name} has no definition in the file", hint="put it into the same file")
    # A class cannot be part of itself.
    others = {key: one for key, one in classes.items() if key != name.lower()}
    return _parsed(definitions[0].tokens, others)


def _parsed(tokens: Sequence[str], classes: Mapping[str, _Block]) -> Node:
    """A boolean expression. Raises UsageError."""
    left = list(reversed(tokens))

    def take(wanted: str = "") -> str:
        if not left or (wanted and left[-1] != wanted):
            raise UsageError(
                f"a condition ends, or is not understood, at {(left or ['its end'])[-1].removeprefix(chr(34))!r}"
            )
        return left.pop()

    def term() -> Node:
        word = take()
        if word.lower() == "not":
            return ("not", term())
        if word == "(":
            inner = expression()
            take(")")
            return inner
        operator = take()
        if operator == "<>":
            operator = "!="
        if operator not in _OPPOSITE:
            raise Refused(f"{word} {operator}: such a condition is not read")
        value = take().removeprefix('"')
        if word.lower() == "fileclass":
            known = _class(value, classes)
            return known if operator == "==" else ("not", known)
        return ("test", (word.lower(), operator, value))

    def expression() -> Node:
        nodes, kind = [term()], ""
        while left and left[-1].lower() in ("and", "or"):
            word = take().lower()
            if kind not in ("", word):
                raise Refused("`and` and `or` are mixed without parentheses", hint="add those that are meant")
            kind = word
            nodes.append(term())
        return (kind, nodes) if kind else nodes[0]

    found = expression()
    if left:
        take("the end")
    return found


def _alternatives(node: Node, *, negated: bool) -> list[list[Test]]:
    """The alternatives of a condition: lists of tests that must all hold."""
    kind, value = node
    if kind == "test":
        name, operator, wanted = value
        return [[(name, _OPPOSITE[operator] if negated else operator, wanted)]]
    if kind == "not":
        return _alternatives(value, negated=not negated)
    parts = [_alternatives(one, negated=negated) for one in value]
    if (kind == "or") is not negated:
        return [one for part in parts for one in part]
    found: list[list[Test]] = [[]]
    for part in parts:
        found = [[*one, *other] for one in found for other in part]
        if len(found) > _MOST:
            raise Refused("the condition has too many alternatives")
    return found


def _rule(tests: Sequence[Test], root: bytes, problems: list[str]) -> tuple[bytes | None, ReapRule]:
    """The tree (None: all trees) and the rule of one alternative."""
    trees = {value for name, operator, value in tests if name == "tree" and operator == "=="}
    tree = None
    for value in trees:
        path = value.encode().rstrip(b"/")
        tree = path[len(root) + 1 :] or None
        # A name without a slash is a user of [reap.users], who may have other trees.
        if len(trees) > 1 or _SPECIAL.search(path) or not is_beneath(path, root) or (tree and b"/" not in tree):
            problems.append(f'tree == "{value}"')
    rule = ReapRule()
    for test in tests:
        changed = _with(rule, tree, root, test)
        if changed is None:
            problems.append(" ".join(test))
        rule = changed or rule
    if not rule.matches_anything:
        problems.append("files of any age and size")
    return tree, rule


def _with(rule: ReapRule, tree: bytes | None, root: bytes, test: Test) -> ReapRule | None:
    """The rule with one more condition; None if it cannot express it. It takes regular files with one name anyway."""
    name, operator, value = test
    if name == "tree" and operator == "==":
        return rule
    if name == "type":
        return rule if (operator == "==") == (value == "file") else None
    if name == "nlink":
        return rule if (operator, value) in {("<=", "1"), ("==", "1"), ("<", "2")} else None
    if name in _CLOCKS and operator in (">", ">="):
        seconds = _amount(value, _DURATION_S)
        if (
            name == "last_mod"
            and rule.by is ReapClock.ATIME
            and seconds is not None
            and seconds <= (rule.older_than_s or 0)
        ):
            return rule  # a file that old by both times is that old by the later one
        if seconds is None or (rule.older_than_s is not None and rule.by is not _CLOCKS[name]):
            return None
        return replace(rule, older_than_s=max(seconds, rule.older_than_s or 0), by=_CLOCKS[name])
    if name == "size" and (operator in ("<", "<=") or (operator, value) == ("==", "0")):
        size_bytes = _amount(value, _SIZE_BYTES)
        if size_bytes is None or (operator, size_bytes) == ("<", 0):
            return None
        most = size_bytes + (operator != "<")
        return replace(rule, smaller_than_bytes=min(most, rule.smaller_than_bytes or most))
    if operator == "!=" and name in ("name", "tree", "path"):
        glob = _excluded(tree, root, name, value)
        return None if glob is None else replace(rule, exclude=(*rule.exclude, glob))
    return None


def _amount(value: str, units: Mapping[str, int]) -> int | None:
    match = re.fullmatch(r"([0-9]{1,20})([A-Za-z]*)", value, re.ASCII)
    factor = units.get(match[2].lower()) if match else None
    return int(match[1]) * factor if match and factor is not None else None


def _excluded(tree: bytes | None, root: bytes, name: str, value: str) -> str | None:
    """A glob of `exclude` that excludes at least as much; None if there is none."""
    glob = value.encode().rstrip(b"/")
    if name != "name":
        top = root + b"/" + tree + b"/" if tree else b""
        if not top or not glob.startswith(top):
            return None
        glob = glob[len(top) :]
    if glob.startswith(b"**/"):
        glob = glob[3:]
        if b"/" in glob:
            return None
    if _IN_GLOB.search(glob) or b"**" in glob or any(part in (b"", b".", b"..") for part in glob.split(b"/")):
        return None
    return glob.decode()


def _toml(found: Sequence[tuple[bytes | None, ReapRule]], name: str) -> str:
    lines = [f"# From Robinhood's policy {name}. Hidden and executable files stay.", "[reap]", 'action = "list"']
    lines.append(f'by = "{next((rule.by.value for _, rule in found if rule.older_than_s is not None), "mtime")}"')
    for tree, rule in found:
        if tree is not None:
            lines += ["", f"[reap.users.{json.dumps(show(tree), ensure_ascii=False)}]"]
        if rule.older_than_s is not None:
            lines.append(f'older_than = "{rule.older_than_s}s"')
        if rule.smaller_than_bytes is not None:
            lines.append(f'smaller_than = "{rule.smaller_than_bytes}B"')
        if rule.exclude:
            lines.append(f"exclude = {json.dumps(list(dict.fromkeys(rule.exclude)), ensure_ascii=False)}")
    return "\n".join(lines) + "\n"
