"""A site whose only user was cut over and works on the target, for tests of carrying back. Real file systems and streams."""

import asyncio
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from migrator.app import Wiring
from migrator.app.cutover import BackSites
from migrator.core.entry import UserTree
from migrator.cutover.carry_back import CarryingBack
from migrator.cutover.model import CutoverNotes, CutoverRecord, CutoverState, PassSeen, ProofSeen, TargetChanges
from migrator.cutover.ports import CarriedBack
from migrator.site.load import load_site
from migrator.verify.model import DigestPolicy
from tests.support.delta_changes import let_settle
from tests.support.run_site import RealSite
from tests.support.verify_world import SilentProgress

TREE = UserTree(path=b"home/ann", user="ann")
OWNER = 60001
TRASH = ".migrator-trash"


@contextmanager
def opened(file: Path) -> Iterator[tuple[CarryingBack, CutoverRecord]]:
    """Carrying back for the site of this file, and the record of a cutover that its newest verification proved."""
    wiring = Wiring(load_site(file))
    with wiring.ledger() as own:
        known = own.site.read()
        (plan,) = own.plans.names()
        proof = own.verifications.latest(plan, 1)
        assert known is not None
        assert proof is not None
        record = CutoverRecord(
            id=7,
            token="token",
            plan=plan,
            batch=1,
            tree=TREE,
            attempt=1,
            state=CutoverState.CARRYING_BACK,
            times={CutoverState.CARRYING_BACK: 5.0},
            predicted_freeze_s=None,
            notes=CutoverNotes(verification_id=proof.id, manifest=proof.manifest),
        )
        policy = DigestPolicy(algorithm="xxh3_128", share=1.0, seed=0)
        yield BackSites(wiring=wiring, own=own, known=known, progress=SilentProgress(), policy=policy), record


@dataclass
class BackWorld:
    """`source` and `target` are the tops of the user's tree."""

    site: RealSite

    @property
    def source(self) -> Path:
        return self.site.source.path / "home" / "ann"

    @property
    def target(self) -> Path:
        return self.site.target.path / "home" / "ann"

    @property
    def directory(self) -> Path:
        return self.site.directory / "state" / "back" / "000007-token"

    def switch(self) -> None:
        """Prove both sides equal, freeze the source, open the target."""
        let_settle()
        done = self.site.migrator("verify", "--user-batch", "1")
        assert done.returncode == 0, done.stdout + done.stderr
        os.chown(self.source, 0, -1)
        self.source.chmod(0o500)
        os.chown(self.target, OWNER, OWNER)
        self.target.chmod(0o755)

    def freeze_target(self, *, mode: int = 0o700) -> None:
        os.chown(self.target, 0, 0 if mode == 0o700 else OWNER)
        self.target.chmod(mode)

    def carry(self) -> CarriedBack:
        with opened(self.site.file) as (back, record):
            return asyncio.run(back.carry(record))

    def verify(self) -> ProofSeen:
        with opened(self.site.file) as (back, record):
            return asyncio.run(back.verify(record))

    def seen(self) -> tuple[PassSeen | None, ProofSeen | None]:
        with opened(self.site.file) as (back, record):
            return back.seen(record)

    def changes(self) -> TargetChanges | None:
        with opened(self.site.file) as (back, record):
            return back.changes(record)

    def differences(self) -> str:
        """What rsync says of the tree, content included, but for its top and for archives; nothing where all is equal."""
        roots = (f"{self.target}/", f"{self.source}/")
        done = subprocess.run(
            [*["rsync", "-naHAXi", "--checksum", "--delete", "--numeric-ids", "--exclude=/.migrator-archive"], *roots],
            capture_output=True,
            check=True,
            timeout=600,
        )
        lines = done.stdout.split(b"\n")
        return "\n".join(repr(line) for line in lines if line and not line.endswith(b" ./"))

    def proves(self) -> None:
        """Both sides are equal, by the program and by rsync, and the top of the source is as the freeze left it."""
        proof, (copied, _) = self.verify(), self.seen()
        assert proof.whole, proof.reasons
        assert proof.differences == 0, self.why()
        assert proof.by_policy
        assert copied is not None
        assert copied.finished_at_s is not None
        assert (copied.whole, copied.changed, copied.vanished, copied.failed) == (True, 0, 0, 0)
        assert proof.catalog == copied.catalog
        assert self.differences() == ""
        facts = self.source.stat()
        assert (facts.st_uid, facts.st_mode & 0o7777) == (0, 0o500)

    def why(self) -> Mapping[bytes, str]:
        """What the newest verification found, by path."""
        import pyarrow.parquet as pq

        newest = max((self.directory / "manifests").iterdir())
        rows = pq.read_table(newest / "differences.parquet").to_pylist()
        return {row["path"]: f"{row['kind']}: {row['source']} | {row['target']}" for row in rows}

    def trashed(self) -> set[str]:
        """Paths in the trash of the source, each relative to the place of its pass."""
        found: set[str] = set()
        for place in (self.site.source.path / TRASH).iterdir():
            for above, directories, names in os.walk(place):
                found.update(str(Path(above, name).relative_to(place)) for name in (*directories, *names))
        return found
