"""Removing temporary files of killed streams. The verification lists any that remain."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from migrator.core.errors import MigratorError, Refused
from migrator.core.paths import name, parent, show
from migrator.core.states import ChunkState
from migrator.transfer import model
from migrator.transfer.context import LOG, PassUnderWay, RunInvocation, TransferPorts
from migrator.transfer.judging import look_up
from migrator.transfer.rules_leftovers import is_leftover, is_stream_leftover, marks_name, part_name, temporary_marks

Looks = Callable[[bytes, Collection[bytes]], bool]


async def remove_after_crash(invocation: RunInvocation, attempt: model.AttemptRecord) -> None:
    """Remove temporary files of an attempt of a killed run, while no stream runs. The caller has checked both mounts
    and the source's health. Raises Refused if the target does not answer.
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


async def remove_before_stream(under_way: PassUnderWay, paths: Sequence[bytes], *, parts: bool = False) -> None:
    """Remove temporary files of earlier streams over these paths, while other streams run. With `parts`, also remove
    the ranges of these files that have arrived: another engine copies them whole.

    Removes nothing while the source may not show all of its files: a suspect could be a user's file.
    """
    world, timeout_s = under_way.world, under_way.request.stall_timeout_s
    seed = world.ledger.site.required().name_seed
    of_parts = {of_part(name(path), seed) for path in paths for of_part in (part_name, marks_name)} if parts else set()

    def looks(candidate: bytes, marks: Collection[bytes]) -> bool:
        return candidate in of_parts or is_stream_leftover(candidate, marks)

    try:
        found = await world.blocking(lambda: list(_find(world, paths, looks)), timeout_s=timeout_s)
        if not found or (await under_way.health.begun_after_now()).doubts:
            return
        removed = await world.blocking(lambda: sum(map(partial(_remove, world), found)), timeout_s=timeout_s)
    except TimeoutError:
        LOG.warning("the target does not answer in time: temporary files of an earlier stream stay")
        return
    LOG.info("temporary files of earlier streams removed: %s", removed)


def _remove_of_attempt(world: TransferPorts, attempt: model.AttemptRecord) -> int:
    chunk = world.ledger.passes.chunk(attempt.chunk_id)
    if chunk.state is not ChunkState.RUNNING:
        return 0
    try:
        chunk_list = chunk.list_path or world.ledger.passes.read(chunk.pass_id).chunk_list
        paths = [listed.path for listed in world.chunk_lists.paths(chunk_list, chunk.number)]
    except MigratorError as error:
        # The plan may be an older one whose files are gone: that must not block another plan.
        LOG.warning("temporary files of attempt %s stay: %s", attempt.id, error.message)
        return 0
    return sum(map(partial(_remove, world), list(_find(world, paths, is_leftover))))


def _find(world: TransferPorts, paths: Sequence[bytes], looks_left_over: Looks) -> Iterator[bytes]:
    """Files of the target that look like temporary ones of these paths, and are absent from the source."""
    listed = frozenset(paths)
    marks: dict[bytes, set[bytes]] = {}
    seed = world.ledger.site.required().name_seed
    for path in paths:
        marks.setdefault(parent(path), set()).update(temporary_marks(name(path), seed))
    for directory, marks_there in marks.items():
        for block in world.target.read_directory(directory):
            for entry in block.entries:
                suspect = looks_left_over(name(entry.path), marks_there) and entry.path not in listed
                # If the look-up fails, the path may be a user's file: it stays.
                if suspect and look_up(world.source, entry.path) is None:
                    yield entry.path


def _remove(world: TransferPorts, path: bytes) -> int:
    try:
        world.target.remove_leftover(path)
    except OSError as error:
        LOG.warning("%s cannot be removed: %s", show(path), error.strerror)
        return 0
    return 1
