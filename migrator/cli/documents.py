"""Documents for the results of `init` and `lab`."""

from migrator.core.paths import show
from migrator.core.units import format_count, format_duration, format_size, several
from migrator.lab.churn import ChurnSummary
from migrator.lab.model import LabKind, LabState
from migrator.render.document import Block, Document, Section, clean, facts, figure, paragraph, table, text
from migrator.site.init import InitResult


def init_document(result: InitResult) -> Document:
    """The result of `init`."""
    return Document(
        title="Site",
        subtitle=clean(result.site_id),
        sections=(
            Section(
                title="Recorded",
                blocks=(
                    facts(
                        [
                            ("source", f"{result.source.filesystem} from {result.source.mounted_from}"),
                            ("target", f"{result.target.filesystem} from {result.target.mounted_from}"),
                        ]
                    ),
                    paragraph("; ".join(result.done) if result.done else "nothing left to do"),
                    *(paragraph(note, alert=True) for note in result.notes),
                ),
            ),
        ),
    )


def lab_document(state: LabState) -> Document:
    """The parts of a lab, and the next step."""
    pairs = [("source", show(state.source)), ("target", show(state.target)), ("site.toml", show(state.site_file))]
    if state.spec.kind is LabKind.GLUSTER:
        bricks = several(len(state.bricks), "brick")
        pairs.insert(0, ("volume", f"{state.spec.volume_type} of {bricks} on {several(len(state.hosts), 'host')}"))
    pairs += [
        ("user trees", format_count(len(state.trees))),
        ("ordinary files", f"{format_count(state.files)}, {format_size(state.data_bytes)}"),
    ]
    blocks: list[Block] = [facts(pairs), *(paragraph(note) for note in state.notes)]
    if state.spec.odd:
        blocks.append(
            paragraph(
                "The heaviest trees also have a directory of odd files (names, links, holes, attributes), and some files "
                "lie outside every tree: `migrator scan` counts those too."
            )
        )
    blocks.append(paragraph(f"Next: export MIGRATOR_SITE={show(state.site_file)}; migrator init; migrator doctor"))
    return Document(
        title="Lab",
        subtitle=show(state.spec.directory),
        sections=(Section(title="What there is", blocks=tuple(blocks)),),
    )


def churn_document(summary: ChurnSummary, journal: bytes) -> Document:
    """The result of a churn."""
    rows = [(kind, format_count(count)) for kind, count in sorted(summary.operations.items())]
    return Document(
        title="Churn",
        subtitle=f"{format_duration(summary.duration_s)}; every path is in {show(journal)}",
        sections=(
            Section(
                title="Operations",
                blocks=(
                    table("", [text("operation"), figure("count")], rows),
                    paragraph(f"{format_count(summary.refused)} were refused by the file system."),
                ),
            ),
        ),
    )
