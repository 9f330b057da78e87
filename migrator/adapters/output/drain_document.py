"""Drains of bricks, for people."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.addition_document import addition_table, directory_tables
from migrator.adapters.output.document import (
    Block,
    Document,
    Section,
    clean,
    facts,
    figure,
    paragraph,
    paths,
    table,
    text,
    wide,
)
from migrator.adapters.output.wording import NONE, when
from migrator.decide.drain_retained import retained_words
from migrator.domain.addition_standing import BrickStandings
from migrator.domain.drain_preflight import RetainedSource
from migrator.domain.drain_run import DrainCheck, DrainEnding, DrainSummary
from migrator.domain.drain_standing import DrainStanding
from migrator.domain.paths import show
from migrator.domain.units import format_count, format_duration, format_rate, format_size

_GOOD = (DrainEnding.DONE, DrainEnding.TAKEN_BACK, DrainEnding.PLANNED)


def drain_document(summary: DrainSummary) -> Document:
    """What a call came to, or what it would do."""
    title = "Drain taken back" if summary.back else "Drain"
    sections = [Section(title="Result", blocks=tuple(_result(summary)))]
    if summary.check is not None:
        sections.append(Section(title="What the guards look at", blocks=tuple(_check(summary.check))))
    if summary.standing is not None and summary.standing.id:
        sections.append(Section(title="How far it is", blocks=(drain_table((summary.standing,)),)))
    return Document(
        title=clean(f"{title}, a dry run: nothing was changed" if summary.dry_run else title),
        subtitle=clean(f"{', '.join(summary.bricks)} of volume {summary.volume}"),
        sections=tuple(sections),
    )


def brick_standings_document(bricks: BrickStandings) -> Document:
    """All drains and additions that the ledger knows."""
    drains: list[Block] = [drain_table(bricks.drains)] if bricks.drains else [paragraph("No brick was ever drained.")]
    added: list[Block] = [addition_table(bricks.additions)] if bricks.additions else [paragraph("No brick was added.")]
    for blocks, every in ((drains, bricks.drains), (added, bricks.additions)):
        blocks += [paragraph(f"{', '.join(one.bricks)}: {one.failure}", alert=True) for one in every if one.failure]
    for one in bricks.additions:
        added += directory_tables(one.directories)
    sections = (Section(title="Drains", blocks=tuple(drains)), Section(title="Additions", blocks=tuple(added)))
    return Document(title="Drains and additions of bricks", subtitle="by the ledger", sections=sections)


def drain_table(drains: Sequence[DrainStanding]) -> Block:
    """How far every drain is."""
    columns = [
        wide("bricks"),
        text("state"),
        text("since"),
        figure("moved"),
        figure("bytes"),
        figure("files left"),
        figure("bytes left"),
        figure("failures"),
        figure("skipped"),
        figure("rate"),
        figure("time left"),
        text("looked at"),
    ]
    return table("", columns, [_row(one) for one in drains])


def _row(one: DrainStanding) -> tuple[str, ...]:
    return (
        ", ".join(one.bricks),
        one.state.value,
        when(one.since_s),
        format_count(one.moved_files),
        format_size(one.moved_bytes),
        NONE if one.left_files is None else format_count(one.left_files),
        NONE if one.left_bytes is None else format_size(one.left_bytes),
        format_count(one.failures),
        format_count(one.skipped),
        NONE if one.bytes_per_s is None else format_rate(one.bytes_per_s),
        NONE if one.left_s is None else format_duration(one.left_s),
        when(one.looked_at_s),
    )


def _result(summary: DrainSummary) -> Iterator[Block]:
    yield paragraph(summary.words, alert=summary.ending not in _GOOD)
    for reason in summary.reasons:
        yield paragraph(reason, alert=True)
    if summary.left_behind:
        yield table("Left on the bricks", [paths("path")], [(show(path),) for path in summary.left_behind])
        if summary.left_file is not None:
            yield paragraph(f"All of them, brick by brick: {summary.left_file}")
        yield paragraph(
            "What to do: see why it was not moved (Gluster's rebalance log on the host), put that right, and give the same "
            "command again: it drains what is left. Or take the drain back with `migrator brick stop`. Never commit with force."
        )
    if summary.hint:
        yield paragraph(f"Next: {summary.hint}.")
    if summary.confirm is not None and summary.dry_run:
        yield paragraph(f"The word that allows the pre-wipe hooks to wipe it after the commit: {summary.confirm}.")


def _check(check: DrainCheck) -> Iterator[Block]:
    versions = (
        "not known"
        if not check.versions
        else ", ".join(f"{host}: {version or 'not known'}" for host, version in sorted(check.versions.items()))
    )
    links = check.linked_symlinks
    yield facts(
        [
            ("on the disks", _size(check.used_bytes)),
            ("inodes in use", _count(check.used_inodes)),
            ("files", _count(check.files)),
            ("bytes", _size(check.size_bytes)),
            ("largest file", _size(check.largest_bytes)),
            ("by catalog", NONE if check.catalog is None else f"{check.catalog}, {when(check.catalog_at_s)}"),
            ("cluster.min-free-disk", check.min_free_disk or "not known"),
            ("GlusterFS", versions),
            ("open files", _count(check.open_files)),
            ("symlinks with several names", "not known" if links is None else format_count(len(links))),
            ("sources of users on the target", _retained(check.retained)),
        ]
    )
    if links:
        yield table("Symlinks that cannot be moved", [paths("path")], [(show(path),) for path in links], limit=40)
        yield paragraph(
            "Give each of these names a symlink of its own: `cp -P NAME NAME.new`, then `mv -T NAME.new NAME`."
        )
    if check.rooms:
        columns = [wide("brick that stays"), figure("size"), figure("free"), figure("free inodes")]
        yield table(
            "",
            columns,
            [
                (name, _size(room.total_bytes), _size(room.free_bytes), _count(room.free_inodes))
                for name, room in sorted(check.rooms.items())
            ],
        )


def _retained(sources: Sequence[RetainedSource] | None) -> str:
    if sources is None:
        return "not known"
    return f"{retained_words(sources)}: they are moved for nothing" if sources else "none"


def _size(size_bytes: int | None) -> str:
    return "not known" if size_bytes is None else format_size(size_bytes)


def _count(count: int | None) -> str:
    return "not known" if count is None else format_count(count)
