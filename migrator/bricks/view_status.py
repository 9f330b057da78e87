"""The document of `brick status`."""

from migrator.bricks.add.view import addition_table, directory_tables
from migrator.bricks.drain.view import drain_table
from migrator.bricks.status import BrickStandings
from migrator.render import document


def brick_standings_document(bricks: BrickStandings) -> document.Document:
    """Show all drains and additions in the ledger."""
    drains: list[document.Block] = (
        [drain_table(bricks.drains)] if bricks.drains else [document.paragraph("No brick was ever drained.")]
    )
    added: list[document.Block] = (
        [addition_table(bricks.additions)] if bricks.additions else [document.paragraph("No brick was added.")]
    )
    for blocks, every in ((drains, bricks.drains), (added, bricks.additions)):
        blocks += [
            document.paragraph(f"{', '.join(one.bricks)}: {one.failure}", alert=True) for one in every if one.failure
        ]
    for one in bricks.additions:
        added += directory_tables(one.directories)
    return document.page(
        "Drains and additions of bricks", ("Drains", drains), ("Additions", added), subtitle="by the ledger"
    )
