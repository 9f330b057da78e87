"""A site in miniature for tests of the verification: two roots, a ledger, a plan of one or more batches."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.catalog.files import ClosedCatalogs
from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.model import VerificationRecord
from migrator.catalog.ports import Scratch
from migrator.core.clock import SystemClock
from migrator.core.entry import Entry, EntryType, UserTree
from migrator.core.states import BatchState
from migrator.fs.model import DigestPolicy, SourceHealth
from migrator.fs.ports import Digest
from migrator.fs.reading import PosixSource, ReadingFileSystem
from migrator.fs.writing import MountedTarget
from migrator.plan.model import Batch, Plan
from migrator.verify.verify import Verification
from tests.support.fakes import FakeProgress
from tests.support.plans import small_plan
from tests.support.records import site_record
from tests.transfer.native_copy import copy_entries

TREE = b"home/alice"
OTHER_TREE = b"home/bob"


class Source(PosixSource):
    """A source whose health a test can spoil: the answers come one after the other, the last one again and again."""

    answers: Sequence[SourceHealth] = ()

    async def health(self) -> SourceHealth:
        if not self.answers:
            return await super().health()
        answer, *later = self.answers
        self.answers = later or [answer]
        return answer


def walk_tree(file_system: ReadingFileSystem, tree: bytes) -> Iterator[Entry]:
    """Every entry of a tree, directories before what lies in them."""
    waiting = [tree]
    while waiting:
        for block in file_system.read_directory(waiting.pop()):
            assert not block.problems
            for entry in block.entries:
                yield entry
                if entry.type is EntryType.DIRECTORY:
                    waiting.append(entry.path)


def copy_trees(source_root: bytes, target_root: bytes, trees: Sequence[bytes]) -> None:
    """A faithful copy by the compiled program: hard links within all trees, times last."""
    source, target = ReadingFileSystem(source_root), MountedTarget(target_root)
    for tree in trees:
        parents = [source.look(b"/".join(tree.split(b"/")[:depth])) for depth in range(1, tree.count(b"/") + 1)]
        target.make_parents(tree, [entry for entry in parents if entry is not None])
    entries = [entry for tree in trees for entry in walk_tree(source, tree)]
    assert not copy_entries(Path(os.fsdecode(source_root)), Path(os.fsdecode(target_root)), entries)
    source.close()
    target.close()


@dataclass
class World:
    directory: Path
    source_path: Path
    target_path: Path
    ledger: MigrationLedger
    manifests: ManifestDirectories
    plan: Plan
    progress: FakeProgress
    source: Source
    target: MountedTarget

    @property
    def source_root(self) -> bytes:
        return os.fsencode(self.source_path)

    @property
    def target_root(self) -> bytes:
        return os.fsencode(self.target_path)

    @property
    def tree(self) -> Path:
        return self.source_path / os.fsdecode(TREE)

    @property
    def copy(self) -> Path:
        return self.target_path / os.fsdecode(TREE)

    def copy_trees(self, *trees: bytes) -> None:
        copy_trees(self.source_root, self.target_root, trees or (TREE,))

    def verification(
        self, batch: int = 1, *, share: float = 1.0, algorithm: str = "xxh3_128", **options: Any
    ) -> Verification:
        ports = {"workers": 2, "clock": SystemClock(), **options}
        return Verification(
            plan=self.plan,
            batch=batch,
            policy=DigestPolicy(algorithm=algorithm, share=share, seed=7),
            source=self.source,
            target=self.target,
            manifests=self.manifests,
            ledger=self.ledger,
            progress=self.progress,
            **ports,
        )

    async def verify_now(self, batch: int = 1, **options: Any) -> VerificationRecord:
        return await self.verification(batch, **options).run()

    def read_ahead(self, batch: int = 1, **options: Any) -> None:
        asyncio.run(self.verification(batch, **options).read_ahead())

    def watch_reads(self) -> list[bytes]:
        """The paths in the tree whose content is read on the source from now on."""
        seen, plain = list[bytes](), self.source.digest

        def digest(path: bytes, algorithm: str) -> Digest:
            seen.append(path.removeprefix(TREE + b"/"))
            return plain(path, algorithm)

        self.source.digest = digest  # type: ignore[method-assign]
        return seen

    def verify(self, batch: int = 1, **options: Any) -> VerificationRecord:
        return asyncio.run(self.verify_now(batch, **options))

    def batch_state(self, batch: int = 1) -> BatchState:
        record = self.ledger.plans.read(self.plan.name)
        assert record is not None
        return record.batches[batch]

    def set_trees(self, *batches: Sequence[bytes], state: BatchState = BatchState.SEEDED) -> None:
        """Record a plan of these batches, each in a state."""
        name = f"plan-{len(batches)}"
        template = small_plan(name).batches[0]
        made: list[Batch] = [
            replace(
                template,
                number=number,
                trees=tuple(UserTree(path=tree, user=os.fsdecode(tree)) for tree in trees),
            )
            for number, trees in enumerate(batches, 1)
        ]
        self.plan = replace(small_plan(name), batches=tuple(made))
        self.ledger.plans.record(self.plan, path=f"{name}.json", checksum="c")
        for number in range(1, len(batches) + 1):
            for step in (BatchState.SEEDING, BatchState.SEEDED, BatchState.VERIFIED):
                if state is not BatchState.PLANNED and self.batch_state(number) is not state:
                    self.ledger.plans.set_batch_state(name, number, step)

    def manifest_rows(self, record: VerificationRecord) -> list[dict[str, Any]]:
        assert record.manifest is not None
        rows: list[dict[str, Any]] = pq.read_table(record.manifest).to_pylist()
        return rows


@contextmanager
def verify_world(directory: Path, source: Path | None = None, target: Path | None = None) -> Iterator[World]:
    """A site over two roots, in `directory` if they are not given; the plan is one batch with the tree `home/alice`."""
    state = directory / "state"
    source, target = source or directory / "source", target or directory / "target"
    for side in (source, target):
        side.mkdir(exist_ok=True)
    source_side = Source(os.fsencode(source))
    target_side = MountedTarget(os.fsencode(target))
    with MigrationLedger.open(state / "ledger.db", create=True) as ledger:
        ledger.site.create(site_record(source_side.identity(), target_side.identity()))
        ledger.site.record_capabilities(target_side.probe(), 11.0)
        manifests = ManifestDirectories(
            state / "manifests",
            catalogs=ClosedCatalogs(state / "catalogs", ledger.scans.named),
            scratch=Scratch(state / "temporary"),
            part_rows=50,
        )
        world = World(
            directory=directory,
            source_path=source,
            target_path=target,
            ledger=ledger,
            manifests=manifests,
            plan=small_plan(),
            progress=FakeProgress(),
            source=source_side,
            target=target_side,
        )
        world.set_trees((TREE,))
        try:
            yield world
        finally:
            source_side.close()
            target_side.close()
