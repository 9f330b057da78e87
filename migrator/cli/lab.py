"""The rehearsal: `lab up`, `lab down`, `lab churn`."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from migrator import app
from migrator.cli.call import SIZE, present, run_to_end, verb
from migrator.cli.global_options import GlobalOptions
from migrator.cli.signals import stopped_by_signals
from migrator.core.clock import SystemClock
from migrator.core.errors import ExitCode, UsageError
from migrator.core.paths import show
from migrator.core.units import format_count, format_duration, format_size, several
from migrator.lab.churn import ChurnSummary, lab_churn
from migrator.lab.down import lab_down
from migrator.lab.machine import why_no_cluster
from migrator.lab.model import LabKind, LabSpec, LabState, VolumeType
from migrator.lab.record import read_record
from migrator.lab.up import lab_up
from migrator.render import document as doc
from migrator.render.log import MESSAGES

_DEFAULTS = LabSpec(directory=b"/var/tmp/migrator-lab")
_DIRECTORY = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(os.fsdecode(_DEFAULTS.directory)),
    show_default=True,
    help="Directory of the lab.",
)


def _size(option: str, field: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:  # noqa: ANN401 - of click
    """An option for a field of LabSpec."""
    return click.option(option, field, default=getattr(_DEFAULTS, field), **more)


@click.group("lab")
def lab() -> None:
    """Run a lab on this machine: a real GlusterFS cluster with invented users."""
    os.umask(0o022)  # its users come to their directories through those of the lab


@lab.command("up")
@_DIRECTORY
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in LabKind]),
    help="Gluster cluster or plain directories (default: what this machine can run).",
)
@_size("--hosts", "hosts", type=int, show_default=True, help="Brick servers.")
@_size("--bricks", "bricks_per_host", type=int, show_default=True, help="Bricks per server.")
@_size("--brick-size", "brick_size_bytes", type=SIZE, help="Size of a brick (sparse; default: 2GiB).")
@_size("--target-size", "target_size_bytes", type=SIZE, help="Size of the target (default: 4GiB).")
@click.option(
    "--type",
    "volume_type",
    type=click.Choice([kind.value for kind in VolumeType]),
    default=_DEFAULTS.volume_type.value,
    show_default=True,
    help="Layout of the volume.",
)
@_size("--users", "users", type=int, show_default=True, help="Invented users.")
@_size("--files", "files", type=int, show_default=True, help="Files in total.")
@_size("--data", "data_bytes", type=SIZE, help="Bytes in total (default: 384MiB).")
@verb
def up_command(
    global_options: GlobalOptions,
    *,
    directory: Path,
    kind: str | None,
    volume_type: str,
    **sizes: Any,  # noqa: ANN401 - fields of LabSpec
) -> ExitCode:
    """Start a lab, fill it with users' trees, and write its site.toml."""
    obstacle = None if kind else why_no_cluster()
    chosen = LabKind(kind) if kind else (LabKind.POSIX if obstacle else LabKind.GLUSTER)
    if obstacle:
        MESSAGES.warning("migrator: no Gluster cluster can run here (%s): plain directories instead", obstacle)
    where, layout = os.fsencode(directory.absolute()), VolumeType(volume_type)
    spec = LabSpec(directory=where, kind=chosen, volume_type=layout, **sizes)
    state = run_to_end(
        lab_up(spec, app.processes(), SystemClock(), on_step=lambda step: MESSAGES.info("lab: %s", step)),
        when_interrupted="the unfinished lab was removed",
    )
    return present(global_options, state, _lab_document)


@lab.command("down")
@_DIRECTORY
@verb
def down_command(global_options: GlobalOptions, directory: Path) -> ExitCode:
    """Stop the lab, also after a crash, and remove its directory."""
    there = run_to_end(
        lab_down(os.fsencode(directory.absolute()), app.processes(), SystemClock()),
        when_interrupted=f"run `migrator lab down --dir {directory}` again: it resumes",
    )
    if global_options.as_json:
        click.echo('{"removed": true}' if there else '{"removed": false}')
    else:
        click.echo(f"The lab in {directory} is gone." if there else f"There is no lab in {directory}.")
    return ExitCode.DONE


@lab.command("churn")
@_DIRECTORY
@click.option("--rate", type=click.FloatRange(min=0.01), default=20.0, show_default=True, help="Operations per second.")
@click.option("--tree", "trees", multiple=True, metavar="PATH", help="Only this user tree; repeatable.")
@click.option("--operations", type=click.IntRange(min=1), help="Number of operations (default: until Ctrl-C).")
@click.option("--journal", type=click.Path(path_type=Path), help="File for the journal (default: in the lab).")
@verb
def churn_command(
    global_options: GlobalOptions,
    *,
    directory: Path,
    rate: float,
    trees: Sequence[str],
    operations: int | None,
    journal: Path | None,
) -> ExitCode:
    """Simulate users: write, rename, link and delete until stopped; keep a journal of every path."""
    state = read_record(os.fsencode(directory.absolute()))
    where = os.fsencode(journal.absolute()) if journal else state.spec.directory + b"/churn.jsonl"
    chosen = tuple(os.fsencode(tree).strip(b"/") for tree in trees) or state.trees
    if unknown := [tree for tree in chosen if tree not in state.trees]:
        raise UsageError(
            f"the lab in {directory} has no user tree {', '.join(map(show, unknown))}",
            hint=f"it has {len(state.trees)}, the first is {show(state.trees[0])}"
            if state.trees
            else "the lab is not up",
        )

    async def work() -> ChurnSummary:
        stop = asyncio.Event()
        with stopped_by_signals(stop.set):
            return await lab_churn(
                state.source,
                chosen,
                journal=where,
                rate_per_s=rate,
                seed=state.spec.seed,
                clock=SystemClock(),
                stop=stop,
                operations=operations,
            )

    MESSAGES.info("lab: churning; Ctrl-C stops it")
    summary = asyncio.run(work())
    return present(global_options, summary, lambda summary: _churn_document(summary, where))


# --- Documents


def _lab_document(state: LabState) -> doc.Document:
    """The parts of a lab, and the next step."""
    pairs = [("source", show(state.source)), ("target", show(state.target)), ("site.toml", show(state.site_file))]
    if state.spec.kind is LabKind.GLUSTER:
        bricks = several(len(state.bricks), "brick")
        pairs.insert(0, ("volume", f"{state.spec.volume_type} of {bricks} on {several(len(state.hosts), 'host')}"))
    pairs += [
        ("user trees", format_count(len(state.trees))),
        ("ordinary files", f"{format_count(state.files)}, {format_size(state.data_bytes)}"),
    ]
    blocks: list[doc.Block] = [doc.facts(pairs), *(doc.paragraph(note) for note in state.notes)]
    if state.spec.odd:
        blocks.append(
            doc.paragraph(
                "The heaviest trees also have a directory of odd files (names, links, holes, attributes), and some files "
                "lie outside every tree: `migrator scan` counts those too."
            )
        )
    blocks.append(doc.paragraph(f"Next: export MIGRATOR_SITE={show(state.site_file)}; migrator init; migrator doctor"))
    return doc.page("Lab", ("Contents", blocks), subtitle=show(state.spec.directory))


def _churn_document(summary: ChurnSummary, journal: bytes) -> doc.Document:
    """The result of a churn."""
    rows = [(kind, format_count(count)) for kind, count in sorted(summary.operations.items())]
    operations = (
        doc.table("", [doc.text("operation"), doc.figure("count")], rows),
        doc.paragraph(f"{format_count(summary.refused)} were refused by the file system."),
    )
    subtitle = f"{format_duration(summary.duration_s)}; every path is in {show(journal)}"
    return doc.page("Churn", ("Operations", operations), subtitle=subtitle)
