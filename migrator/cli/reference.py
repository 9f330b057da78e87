"""docs/cli.md, from the very commands that the program parses by."""

import inspect
from collections.abc import Iterator

import click

from migrator.cli.main import Verbs, main
from migrator.domain.errors import EXIT_CODE_MEANINGS

_HEAD = """# Command line

`migrator [--site FILE] VERB [OPTIONS]`; `--site` is `./site.toml`, or what `MIGRATOR_SITE` names. Every verb takes
`--json` (one document on standard output, see [json.md](json.md)); progress goes to standard error, as plain lines where
that is no terminal. This page is made from the program itself: `make docs`.
"""


def render_cli_reference() -> str:
    """The whole page."""
    lines = [_HEAD, "## Verbs", ""]
    for words, command in verbs(main):
        lines += [f"### `{' '.join(words)}`", "", inspect.cleandoc(command.help or ""), ""]
        lines += ["| option | meaning |", "| --- | --- |"]
        lines += [_row(option) for option in command.params if isinstance(option, click.Option)]
        lines.append("")
    lines += ["## Exit codes", "", "| code | meaning |", "| --- | --- |"]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in EXIT_CODE_MEANINGS.items()]
    return "\n".join(lines) + "\n"


def verbs(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every verb with its words, groups taken apart."""
    commands = group.load() if isinstance(group, Verbs) else group.commands
    for name, command in commands.items():
        if isinstance(command, click.Group):
            yield from verbs(command, (*words, name))
        else:
            yield (*words, name), command


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    text = option.help or ""
    if isinstance(option.type, click.Choice):
        text += f" One of {', '.join(f'`{choice}`' for choice in option.type.choices)}."
    if option.show_default and option.default is not None:
        text += f" Default: `{option.default}`."
    return f"| {names} | {text.replace('|', chr(92) + '|')} |"
