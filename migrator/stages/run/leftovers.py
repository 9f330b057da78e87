"""Removing what streams that were killed have left under temporary names. What stays is listed by the verification."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from migrator.decide.leftovers import is_leftover, is_stream_leftover, marks_name, part_name, temporary_marks
from migrator.domain.entry import Entry
from migrator.domain.errors import MigratorError, Refused
from migrator.domain.paths import join, name, parent, show
from migrator.domain.states import ChunkState
from migrator.domain.transfer import AttemptRecord
from migrator.stages.run.context import LOG, Invocation, PassUnderWay, World
from migrator.stages.run.looking import look

Looks = Callable[[bytes, Collection[bytes]], bool]


async def remove_after_crash(invocation: Invocation, attempt: AttemptRecord) -> None:
    """Remove what an attempt of a run that was killed has left, while nothing else is at work. The caller has made
    sure of both mounts and of the source's health. Raises Refused where the target does not answer.
    """
    world = invocation.world
    try:
        removed = await world.blocking(
            lambda: _remove_of_attempt(world, attempt), timeout_s=invocation.request.stall_timeout_s
        )
    except TimeoutError as error:
        raise Refused(
            "the target does not answer",
            cause="a server of the target is down or frozen",
            hint="check the target, then run the same command again",
        ) from error
    if removed:
        LOG.info("attempt %s: temporary files removed: %s", attempt.id, removed)


async def remove_before_stream(under_way: PassUnderWay, paths: Sequence[bytes]) -> None:
    """Remove what earlier streams over these paths have left, while other streams are at work.

    Nothing is removed that may be a user's file: not while the source may not show all of its files.
    """
    world, timeout_s = under_way.world, under_way.request.stall_timeout_s
    try:
        found = await world.blocking(lambda: list(_find(world, paths, is_stream_leftover)), timeout_s=timeout_s)
        if not found or (await under_way.health.begun_after_now()).doubts:
            return
        removed = await world.blocking(lambda: sum(map(partial(_remove, world), found)), timeout_s=timeout_s)
    except TimeoutError:
        LOG.warning("the target does not answer in time: temporary files of an earlier stream stay")
        return
    LOG.info("temporary files of earlier streams removed: %s", removed)


async def remove_parts(under_way: PassUnderWay, paths: Sequence[bytes]) -> None:
    """Remove what ranges have brought of these files: another engine copies them whole."""
    world = under_way.world

    def remove() -> None:
        for path in paths:
            for of_part in (part_name, marks_name):
                part = join(parent(path), of_part(name(path)))
                # What a look finds on the source is a user's; where the look fails it may be.
                if look(world.source, part) is None and isinstance(look(world.target, part), Entry):
                    _remove(world, part)

    try:
        if not (await under_way.health.begun_after_now()).doubts:
            await world.blocking(remove, timeout_s=under_way.request.stall_timeout_s)
    except TimeoutError:
        LOG.warning("the target does not answer in time: parts of big files stay")


def _remove_of_attempt(world: World, attempt: AttemptRecord) -> int:
    chunk = world.ledger.passes.chunk(attempt.chunk_id)
    if chunk.state is not ChunkState.RUNNING:
        return 0
    try:
        chunk_list = chunk.list_path or world.ledger.passes.read(chunk.pass_id).chunk_list
        paths = [listed.path for listed in world.chunk_lists.paths(chunk_list, chunk.number)]
    except MigratorError as error:
        # The plan may be an older one whose files are gone: no reason to hold up another.
        LOG.warning("temporary files of attempt %s stay: %s", attempt.id, error.message)
        return 0
    return sum(map(partial(_remove, world), list(_find(world, paths, is_leftover))))


def _find(world: World, paths: Sequence[bytes], looks_left_over: Looks) -> Iterator[bytes]:
    """Files of the target that look like temporary ones of these paths, and that a look does not find on the source."""
    listed = frozenset(paths)
    marks: dict[bytes, set[bytes]] = {}
    for path in paths:
        marks.setdefault(parent(path), set()).update(temporary_marks(name(path)))
    for directory, marks_there in marks.items():
        for block in world.target.read_directory(directory):
            for entry in block.entries:
                suspect = looks_left_over(name(entry.path), marks_there) and entry.path not in listed
                # Where the look fails it cannot be told from a user's file: it stays.
                if suspect and look(world.source, entry.path) is None:
                    yield entry.path


def _remove(world: World, path: bytes) -> int:
    try:
        world.target.remove_leftover(path)
    except OSError as error:
        LOG.warning("%s cannot be removed: %s", show(path), error.strerror)
        return 0
    return 1
