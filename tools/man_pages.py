"""Manual pages in roff, made of what `--help` shows: migrator(1), and one page for each verb."""

import inspect
from pathlib import Path

import click

from migrator import __version__
from migrator.cli.main import main
from migrator.core.errors import EXIT_CODE_MEANINGS
from tools.reference_pages import verbs

FILES = (
    ("/etc/migrator/site.toml", "Configuration of the site, by convention; --site or MIGRATOR_SITE names it."),
    ("/usr/share/doc/migrator", "The whole manual, sample hooks and a sample of site.toml."),
)


def write_man_pages(directory: Path) -> None:
    """Write all pages into `directory`, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    commands = list(verbs(main))
    (directory / "migrator.1").write_text(_overview(commands), encoding="utf-8")
    for words, command in commands:
        page = directory / f"{_page_name(words)}.1"
        page.write_text(_page(words, command), encoding="utf-8")


def _overview(commands: list[tuple[tuple[str, ...], click.Command]]) -> str:
    lines = _head("migrator", "move the users of a GlusterFS volume to BeeGFS, and prove every copy")
    lines += _section("SYNOPSIS", ".B migrator", _text("[--site FILE] VERB [OPTIONS]"))
    lines += _section("DESCRIPTION", _text(inspect.cleandoc(main.help or "")))
    lines += _section("OPTIONS", *_options(main))
    lines += [".SH VERBS"]
    for words, command in commands:
        lines += [".TP", f".BR {_text(_page_name(words))} (1)", _text(_summary(command))]
    return "\n".join([*lines, *_exit_codes(), *_files()]) + "\n"


def _page(words: tuple[str, ...], command: click.Command) -> str:
    context = _context(command)
    lines = _head(_page_name(words), _summary(command))
    lines += _section(
        "SYNOPSIS", f".B migrator {' '.join(words)}", _text(" ".join(command.collect_usage_pieces(context)))
    )
    lines += _section("DESCRIPTION", _text(inspect.cleandoc(command.help or "")))
    lines += _section("OPTIONS", *_options(command))
    return "\n".join([*lines, *_exit_codes(), *_files(), ".SH SEE ALSO", ".BR migrator (1)"]) + "\n"


def _head(name: str, summary: str) -> list[str]:
    title = f'.TH {_text(name.upper())} 1 "" "migrator {__version__}" "migrator"'
    return [title, *_section("NAME", f"{_text(name)} \\- {_text(summary)}")]


def _section(title: str, *lines: str) -> list[str]:
    return [f".SH {title}", *lines]


def _context(command: click.Command) -> click.Context:
    """As within the program: `--help` has its short name."""
    return click.Context(command, help_option_names=main.context_settings["help_option_names"])


def _options(command: click.Command) -> list[str]:
    context = _context(command)
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    return [line for names, text in records for line in (".TP", f"\\fB{_text(names)}\\fR", _text(text))]


def _exit_codes() -> list[str]:
    rows = [(".TP", f".B {code.value}", _text(meaning)) for code, meaning in EXIT_CODE_MEANINGS.items()]
    return _section("EXIT STATUS", *(line for row in rows for line in row))


def _files() -> list[str]:
    return _section("FILES", *(line for name, text in FILES for line in (".TP", f".I {name}", _text(text))))


def _page_name(words: tuple[str, ...]) -> str:
    return "-".join(("migrator", *words))


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(limit=200)


def _text(text: str) -> str:
    """Text in which roff sees no request, no escape and no typographic dash; empty lines begin paragraphs."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    lines = [line.strip() or ".PP" for line in plain.replace("\b", "").split("\n")]
    return "\n".join(f"\\&{line}" if line[0] in ".'" and line != ".PP" else line for line in lines)
