"""Everything that is looked at before the source volume is stopped: the guards' facts, and what covers each path."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from migrator.decide.drain_standing import newest_attempts as newest_drains
from migrator.decide.retirement import (
    RetireFacts,
    judge_content,
    judge_path,
    manifest_problem,
    newest_of_trees,
    retire_problems,
    trees_of,
    works_on_target,
)
from migrator.decide.site_guards import mount_problems
from migrator.domain.addition import ENDED_STATES, UNTOUCHED_STATES
from migrator.domain.benchmark import BENCH_NAME
from migrator.domain.cutover import CutoverRecord
from migrator.domain.entry import EntryType
from migrator.domain.errors import MigratorError
from migrator.domain.freezing import Writers
from migrator.domain.probe import PROBE_NAME, is_probe
from migrator.domain.purge import PURGE_NAME
from migrator.domain.purge_proof import Proof
from migrator.domain.retirement import (
    CatalogedPath,
    ClientSeen,
    Cover,
    CoverFound,
    MovedTree,
    PathSum,
    Uncovered,
    UncoveredKind,
)
from migrator.domain.trash import TRASH_NAME
from migrator.domain.verification import VerificationRecord
from migrator.stages.bricks.retire_context import RetireCall, WriteList

_LOOK_TIMEOUT_S = 120.0
_EXAMPLES = 20
"""Of each kind: the others are in the list."""
_CLIENT_LOOKS = 3
_CLIENT_PAUSE_S = 1.0
"""What asks a volume what waits to be healed is a client for a moment itself."""
_STORE = b".glusterfs"
"""Gluster's own directory in every brick: its processes have it open always."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class RetirementLooker:
    """Looks for one call. Nothing is changed."""

    call: RetireCall

    async def problems(self) -> tuple[str, ...]:
        """Every guard's reason against it now."""
        world = self.call.world
        found = await _told(world.volume.state_and_tasks())
        clients, unseen = await self._clients(() if found is None else tuple(one.name for one in found[0].bricks))
        health = await world.source.health()
        if found is not None and health.state is not None:
            state = found[0]
            health = replace(health, state=replace(health.state, peers_down=state.peers_down, heals=state.heals))
        return retire_problems(
            RetireFacts(
                mounts=await self._mounts(),
                health=health,
                tasks=None if found is None else found[1],
                cutovers=tuple(newest_of_trees(self._cutovers()).values()),
                drains=tuple(one.shown_bricks for one in world.ledger.drains.under_way()),
                additions=self._additions(),
                clients=clients,
                clients_unseen=unseen,
                opened=await self._opened(),
                purge_left=await self._seen(self._purge_left),
                strange=await self._seen(self._strange),
            )
        )

    def changed_at_s(self) -> float:
        """When the newest cutover, drain or addition came to where it is."""
        ledger = self.call.world.ledger
        times = [record.since_s for record in self._cutovers()]
        times += [max(record.times.values()) for record in newest_drains(ledger.drains.all())]
        times += [max(record.times.values()) for record in ledger.additions.all()]
        return max(times, default=0.0)

    async def moved(self) -> tuple[tuple[MovedTree, ...], frozenset[bytes], tuple[str, ...]]:
        """The trees with manifests that count, those with others, and why the others do not."""
        moved: list[MovedTree] = []
        verifications = self._verifications()
        unproven: dict[bytes, str] = {}
        for tree, record in newest_of_trees(self._cutovers()).items():
            if not works_on_target(record):
                continue
            problem, manifest = await asyncio.to_thread(self._manifest, record, verifications)
            if problem is None and manifest is not None:
                moved.append(MovedTree(tree=tree, manifest=manifest))
            else:
                unproven[tree] = f"{record.tree.user}: {problem}"
        return tuple(moved), frozenset(unproven), tuple(unproven.values())

    async def cover(self, catalog: str, catalog_at_s: float) -> tuple[CoverFound, tuple[str, ...]]:
        """What covers every path of a catalog, and why some manifests do not count; content is read where that takes it.
        Raises Refused, UsageError, OSError.
        """
        moved, unproven, reasons = await self.moved()
        tally = _Tally()
        listing = nullcontext(None) if self.call.directory is None else self.call.world.list_to(self.call.directory)
        with listing as opened:
            write, name = opened if opened is not None else (None, None)
            blocks = self.call.world.cover.paths(catalog, moved)
            judge = _Judge(self.call, moved=trees_of(moved), unproven=unproven)
            while (block := await asyncio.to_thread(next, blocks, None)) is not None:
                judged = [(path, proof, judge.by_facts(path, proof)) for path, proof in block]
                read = await judge.by_content([(path, proof) for path, proof, one in judged if one is Cover.READ])
                _count(tally, judged, read, write)
        found = CoverFound(
            catalog=catalog,
            catalog_at_s=catalog_at_s,
            proven=tally.sum("proven"),
            own=tally.sum("own"),
            read=tally.sum("read"),
            uncovered={kind: tally.sum(kind) for kind in UncoveredKind if tally.paths[kind]},
            examples=tuple(one for kind in UncoveredKind for one in tally.examples.get(kind, ())),
            list_file=name if tally.examples else None,
        )
        return found, reasons

    def _manifest(
        self, record: CutoverRecord, verifications: Mapping[int, VerificationRecord]
    ) -> tuple[str | None, str | None]:
        """Why the manifest of a cutover does not count, and the manifest."""
        proof = verifications.get(record.notes.verification_id or 0)
        digest = None
        if proof is not None and proof.manifest is not None:
            with suppress(MigratorError, OSError):
                digest = self.call.world.manifests.digest(proof.manifest)
        return manifest_problem(record, proof, digest), None if proof is None else proof.manifest

    def _verifications(self) -> Mapping[int, VerificationRecord]:
        ledger = self.call.world.ledger
        return {one.id: one for name in ledger.plans.names() for one in ledger.verifications.of_plan(name)}

    def _cutovers(self) -> Sequence[CutoverRecord]:
        ledger = self.call.world.ledger
        return [record for name in ledger.plans.names() for record in ledger.cutovers.of_plan(name)]

    def _additions(self) -> tuple[str, ...]:
        newest = {frozenset(one.bricks): one for one in self.call.world.ledger.additions.all()}
        resting = ENDED_STATES | UNTOUCHED_STATES
        return tuple(one.shown_bricks for one in newest.values() if one.state not in resting)

    def _purge_left(self) -> bool:
        """Whether anything lies where trees are taken apart, which no scan lists. Raises OSError."""
        source = self.call.world.source
        if source.look(PURGE_NAME) is None:
            return False
        return any(block.entries or block.problems for block in source.read_directory(PURGE_NAME))

    def _strange(self) -> tuple[bytes, ...]:
        """Names of the program's own in the root that hold what it would not leave there. Raises OSError."""
        source, found = self.call.world.source, []
        for name in (TRASH_NAME, PROBE_NAME, BENCH_NAME):
            seen = source.look(name)
            if seen is None:
                continue
            if (seen.type, seen.uid, seen.mode & 0o077) != (EntryType.DIRECTORY, 0, 0):
                found.append(name)
            elif name != TRASH_NAME:
                blocks = source.read_directory(name)
                if any(block.problems or any(not is_probe(one.path) for one in block.entries) for block in blocks):
                    found.append(name)
        return tuple(found)

    async def _mounts(self) -> tuple[str, ...]:
        source = await self._seen(self.call.world.source.identity)
        return mount_problems(self.call.site.source, source, where="the source")

    async def _clients(self, bricks: Sequence[str]) -> tuple[tuple[ClientSeen, ...] | None, tuple[str, ...]]:
        """Those that are neither this site's mounts nor Gluster's."""
        world = self.call.world
        others: tuple[ClientSeen, ...] | None = None
        unseen: tuple[str, ...] = ()
        for look in range(_CLIENT_LOOKS):
            if look:
                await world.clock.sleep(_CLIENT_PAUSE_S)
            clients = await _told(world.volume.clients())
            known, unseen = await world.endpoints()
            others = None if clients is None else tuple(one for one in clients if one.address not in known)
            # This site's own mount is a client of each: a brick without any is one that was not asked.
            told = {one.brick for one in clients or ()}
            unseen += tuple(f"no client of {brick} was told" for brick in bricks if brick not in told)
            if others == () and not unseen:
                break
        return others, unseen

    async def _opened(self) -> Writers:
        found = await self.call.world.writers.find_writers((b"",))
        own = (_STORE, _STORE + b"/")
        users = [replace(one, path=one.path.lstrip(b"/")) for one in found.open_files]
        return replace(
            found, open_files=tuple(one for one in users if one.path != own[0] and not one.path.startswith(own[1]))
        )

    async def _seen(self, look: Callable[[], T]) -> T | None:
        try:
            return await self.call.world.blocking(look, timeout_s=_LOOK_TIMEOUT_S)
        except (OSError, TimeoutError, MigratorError):
            return None


@dataclass(slots=True, kw_only=True)
class _Tally:
    paths: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    examples: dict[UncoveredKind, list[Uncovered]] = field(default_factory=dict)

    def add(self, name: str, found: CatalogedPath) -> None:
        self.paths[name] += 1
        self.sizes[name] += found.size_bytes if found.type is EntryType.FILE else 0

    def sum(self, name: str) -> PathSum:
        return PathSum(paths=self.paths[name], size_bytes=self.sizes[name])

    def keep(self, one: Uncovered) -> None:
        kept = self.examples.setdefault(one.kind, [])
        kept.append(one)
        kept.sort(key=lambda example: example.path)
        del kept[_EXAMPLES:]


class _Judge:
    """Judges the paths of one catalog."""

    def __init__(self, call: RetireCall, *, moved: frozenset[bytes], unproven: frozenset[bytes]) -> None:
        self._call = call
        self._moved = moved
        self._unproven = unproven
        self._gate = asyncio.Semaphore(call.request.workers)

    def by_facts(self, found: CatalogedPath, proof: Proof | None) -> Cover | Uncovered:
        return judge_path(found, proof, moved=self._moved, unproven=self._unproven)

    async def by_content(self, paths: Sequence[tuple[CatalogedPath, Proof | None]]) -> dict[bytes, Cover | Uncovered]:
        judged = await asyncio.gather(*(self._read(path, proof) for path, proof in paths if proof is not None))
        return dict(judged)

    async def _read(self, found: CatalogedPath, proof: Proof) -> tuple[bytes, Cover | Uncovered]:
        digest, problem = None, ""
        async with self._gate:
            try:
                read = await asyncio.to_thread(self._call.world.source.digest, found.path, proof.algorithm or "")
                digest, problem = read.value, "changed while it was read" if read.changed else ""
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else None
                problem = f"could not be read: {why or error}"
        return found.path, judge_content(found, proof, digest, problem)


def _count(
    tally: _Tally,
    found: Iterable[tuple[CatalogedPath, Proof | None, Cover | Uncovered]],
    read: dict[bytes, Cover | Uncovered],
    write: WriteList | None,
) -> None:
    uncovered: list[Uncovered] = []
    for path, _, judged in found:
        last = read[path.path] if judged is Cover.READ else judged
        if isinstance(last, Uncovered):
            uncovered.append(last)
            tally.add(last.kind, path)
            tally.keep(last)
            continue
        if judged is Cover.READ:
            tally.add("read", path)
        tally.add("own" if last is Cover.OWN else "proven", path)
    if write is not None and uncovered:
        write(uncovered)


async def _told(asked: Awaitable[T]) -> T | None:
    """None where it is not told: every guard takes that for a reason against."""
    try:
        return await asked
    except MigratorError:
        return None
