"""A result in the form that was asked for."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from migrator.adapters.output.json_form import to_json
from migrator.cli.invocation import Invocation

if TYPE_CHECKING:
    from migrator.adapters.output.document import Document

Value = TypeVar("Value")


def present(invocation: Invocation, value: Value, document_of: "Callable[[Value], Document]") -> None:
    """Print a result on standard output: the value as JSON, or as tables its document, made only for that."""
    if invocation.as_json:
        click.echo(to_json(value), nl=False)
    else:
        _print(invocation, document_of(value))


def present_all(invocation: Invocation, values: Sequence[Value], document_of: "Callable[[Value], Document]") -> None:
    """Print several results: one JSON list, or their documents one below the other."""
    if invocation.as_json:
        click.echo(to_json(values), nl=False)
        return
    for value in values:
        _print(invocation, document_of(value))


def _print(invocation: Invocation, document: "Document") -> None:
    # Tables are drawn by a library that scripts do not wait for: they ask for JSON.
    from rich.console import Console  # noqa: PLC0415

    from migrator.adapters.output.tables import print_document  # noqa: PLC0415

    console = Console(width=invocation.width, highlight=False, soft_wrap=False)
    print_document(console, document)
