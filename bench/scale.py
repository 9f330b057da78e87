"""Time, memory and disk by number of paths: `python -m bench scale`. Synthetic catalogs, without a lab."""

import math
import multiprocessing
import resource
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench.options import Options
from bench.results import Section
from bench.timing import say
from migrator.app.ledger import MigrationLedger
from migrator.catalog.database import connect
from migrator.catalog.files import ClosedCatalogs, close_catalog, open_closed, part_name
from migrator.catalog.manifest import MANIFEST_FILE, ManifestDirectories
from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import Scratch
from migrator.core.entry import UserTree
from migrator.core.units import GIB, MIB, TIB, format_size
from migrator.fs.model import Capacity, DigestPolicy, MountIdentity
from migrator.ledger.model import SiteRecord
from migrator.plan.chunk_lists import ChunkListFiles
from migrator.plan.document import PlanFiles
from migrator.plan.plan import PlanRequest, make_plan
from migrator.plan.store import CatalogQueryFiles
from migrator.purge.proofs import open_proofs
from migrator.site.config import Site, SiteSection, SourceSection, TargetSection, UsersSection
from migrator.transfer.delta.model import ExtrasOfTree
from migrator.transfer.delta.store import Comparisons, Extras
from migrator.verify.joined import Joined, SideListing
from tests.support.beegfs_like import BEEGFS_CAPABILITIES

NAME = "scale"
PATHS, LARGE_PATHS = (10**6,), (10**6, 10**7, 3 * 10**7, 10**8)
MEMORY_BYTES = 512 * MIB
ASKED_AT_ONCE = 1000
TREES = 200
PART_ROWS = 100_000
NOW_S = 1_800_000_000
CATALOGS = ("scan-1", "scan-2")
SITE_ID = "00000000-0000-4000-8000-000000000000"
# 40 rows a directory, the first of them the directory itself; a tree's rows come in runs of 4,000, the trees mixed as
# a parallel scan mixes them, and some trees hold far more than others. 2 % of the rows have two names in their tree,
# one row in 10,000 has its second name in another tree. The second catalog has 1 % of the rows changed.
ROWS = """
    SELECT
        (CASE WHEN i % 40 = 0 THEN directory ELSE directory || '/result-' || i || '.dat' END)::BLOB AS path,
        tree::BLOB AS tree, NULL::VARCHAR AS brick,
        CASE WHEN i % 40 = 0 THEN 'directory' WHEN i % 1000 = 3 THEN 'symlink' ELSE 'file' END AS type,
        CASE WHEN i % 40 = 0 THEN 4096 WHEN i % 1000 = 3 THEN 20
            ELSE (exp(6 + 14 * pow((hash(i) % 100000) / 100000.0, 3)))::BIGINT END AS size,
        (size + 511) // 512 AS blocks,
        (1000 + place)::UINTEGER AS uid, 100::UINTEGER AS gid, 420::INTEGER AS mode,
        ($now - hash(i + 1) % 150000000)::BIGINT * 1000000000 + (hash(i) % 1000000000)::BIGINT
            + $changed AS mtime_ns,
        ($now - hash(i + 2) % 50000000)::BIGINT * 1000000000 AS atime_ns,
        mtime_ns + $changed AS ctime_ns, 64::UBIGINT AS dev, 0::UBIGINT AS rdev,
        coalesce(link_group, hash(i + 3)) AS ino, NULL::BLOB AS gfid,
        (CASE WHEN link_group IS NULL THEN 1 ELSE 2 END)::UINTEGER AS nlink,
        link_group,
        CASE WHEN i % 1000 = 3 THEN '../run-1/result.dat'::BLOB END AS symlink_target,
        NULL::BLOB AS xattr_digest, 0::INTEGER AS xattr_largest_bytes, 0::INTEGER AS xattr_kinds,
        0::INTEGER AS acl_entries
    FROM (
        SELECT i, place, tree, tree || '/project-' || i // 4000 || '/run-' || i // 40 AS directory,
            (CASE WHEN i % 50 = 7 THEN 10000000000000000 + i // 100
                WHEN i % 10000 = 19 THEN 20000000000000000 + i // 20000 END)::UBIGINT AS link_group
        FROM (
            SELECT i, (200 * pow((hash(i // 4000) % 100000) / 100000.0, 2))::INTEGER AS place,
                'home/user-' || lpad(place::VARCHAR, 3, '0') AS tree
            FROM range($first, $last) AS numbers(i)
        )
    )
"""


# What hosts have read of the first catalog's files, as they leave it: the target shows whole seconds.
READINGS = """
    SELECT path, ino, size, mtime_ns, ctime_ns, ino AS target_ino, mtime_ns AS target_mtime_ns,
        ctime_ns AS target_ctime_ns, unhex(md5(path)) AS digest, 1::BIGINT AS read_by,
        ctime_ns + 5000000000 AS source_clock_ns, ctime_ns + 5000000000 AS target_clock_ns
    FROM read_parquet($files) WHERE type = 'file'
"""


def write_catalog(directory: Path, rows: int, *, scan_id: int = 1) -> CatalogRecord:
    """A closed catalog of so many rows; that of a second scan has 1 % of them changed."""
    directory.mkdir(parents=True)
    parts: list[str] = []
    changed = "0" if scan_id == 1 else "CASE WHEN i % 100 = 11 THEN 5000000000 ELSE 0 END"
    with connect(Scratch(directory.parent / "tmp", GIB)) as connection:
        connection.execute("SET preserve_insertion_order = true")
        for number, first in enumerate(range(0, rows, PART_ROWS)):
            file = directory / part_name(number)
            values = {"now": NOW_S, "first": first, "last": min(first + PART_ROWS, rows), "changed": changed}
            query = ROWS
            for name, value in values.items():
                query = query.replace(f"${name}", str(value))
            connection.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
            parts.append(file.name)
    record = CatalogRecord(
        name=directory.name,
        scan_id=scan_id,
        site_id=SITE_ID,
        via="mount",
        trees=tuple(
            UserTree(path=f"home/user-{place:03d}".encode(), user=f"user-{place:03d}") for place in range(TREES + 1)
        ),
        parts=(),
        started_at_s=NOW_S - 600.0,
        finished_at_s=NOW_S - 60.0,
        whole=True,
        reasons=(),
        rows=rows,
        files=rows,
        directories=0,
        size_bytes=0,
        problems=0,
    )
    return close_catalog(directory, record, parts)


def write_readings(work: Path) -> None:
    """What hosts have read, a file for each part of the first catalog."""
    (work / "readings").mkdir()
    with connect(_scratch(work)) as connection:
        for file in open_closed(work / "catalogs" / CATALOGS[0]).part_files:
            query = READINGS.replace("$files", f"'{file}'")
            connection.execute(f"COPY ({query}) TO '{work}/readings/{file.name}' (FORMAT parquet, COMPRESSION zstd)")


def _ledger(file: Path) -> MigrationLedger:
    """A real ledger that knows the site and both scans."""
    identity = MountIdentity(
        filesystem="xfs", mounted_from="/dev/null", device=None, fsid=None, root_ino=1, sentinel=None
    )
    record = SiteRecord(
        site_id=SITE_ID,
        name="bench",
        created_at_s=0.0,
        source=identity,
        target=identity,
        capabilities=BEEGFS_CAPABILITIES,
        capabilities_probed_at_s=0.0,
    )
    ledger = MigrationLedger.open(file, create=True)
    ledger.site.create(record)
    for catalog in CATALOGS:
        ledger.scans.start(catalog=catalog, via="mount", at_s=float(NOW_S))
        ledger.scans.finish(open_closed(file.parent / "catalogs" / catalog).record)
    return ledger


class _Clock:
    def now_s(self) -> float:
        return float(NOW_S)

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        raise NotImplementedError(duration_s)


def plan(work: Path) -> int:
    """Plan over the first catalog; the number of listed paths."""
    site = Site(
        file=work / "site.toml",
        site=SiteSection(name="bench", state_dir=work, plans_dir=work / "plans", hooks_dir=work / "hooks"),
        source=SourceSection(kind="posix", mount=Path("/mnt/source")),
        target=TargetSection(kind="beegfs", mount=Path("/mnt/target")),
        users=UsersSection(trees=("home/*",)),
    )
    ledger = _ledger(work / "ledger.db")
    result = make_plan(
        PlanRequest(accept_unknown_inodes=True),
        site=site,
        catalogs=CatalogQueryFiles(_catalogs(work), scratch=_scratch(work)),
        documents=PlanFiles(site.site.plans_dir, site_id=SITE_ID),
        lists=ChunkListFiles(site.site.plans_dir, splits_dir=work / "splits", passes_dir=work / "passes"),
        ledger=ledger,
        quotas=(),
        capacity=Capacity(total_bytes=1000 * TIB, free_bytes=900 * TIB, total_inodes=None, free_inodes=None),
        clock=_Clock(),
    )
    ledger.close()
    return sum(batch.files + batch.directories for batch in result.plan.batches)


def delta(work: Path) -> int:
    """Compare both catalogs; the number of paths to send again."""
    trees = [tree.path for tree in open_closed(work / "catalogs" / CATALOGS[0]).record.trees]
    with Comparisons(_catalogs(work), scratch=_scratch(work)).open(*CATALOGS, trees=trees) as comparison:
        moved = sum(1 for _ in comparison.renames()) + sum(1 for _ in comparison.gone())
        return moved + sum(len(listing.paths) for listing in comparison.listings([trees]))


def extras(work: Path) -> int:
    """Search the first catalog, of an earlier plan, for paths that the second lists no more: there are none."""
    trees = [tree.path for tree in open_closed(work / "catalogs" / CATALOGS[0]).record.trees]
    brought, now = CATALOGS
    wanted = [ExtrasOfTree(tree=tree, brought=(brought,), earlier=(brought,)) for tree in trees]
    with Extras(_catalogs(work), scratch=_scratch(work)).open(wanted, base=now, now=now) as found:
        return sum(1 for _ in found.gone())


def verification(work: Path) -> int:
    """Join both catalogs as the two sides of a verification, and sort its manifest; the paths of both. Those that differ are
    only counted: looking at them takes real files.
    """
    catalogs = [open_closed(work / "catalogs" / name) for name in CATALOGS]
    directories = ManifestDirectories(work / "manifests", catalogs=_catalogs(work), scratch=_scratch(work))
    draft = directories.create("bench", algorithm="xxh3_128")
    source, target = (SideListing(files=tuple(map(str, catalog.part_files))) for catalog in catalogs)
    joined = Joined(
        source,
        target,
        trees=[tree.path for tree in catalogs[0].record.trees],
        now=[str(file) for file in (work / "readings").iterdir()],
        before=(),
        earlier=source.files,
        accounted=(),
        verification=1,
        policy=DigestPolicy(algorithm="xxh3_128", share=1.0, seed=1),
        capabilities=BEEGFS_CAPABILITIES,
        scratch=directories.scratch,
    )
    equal = sum(totals.paths for totals in joined.equal(draft))
    left = sum(len(block) for block in joined.left())
    joined.close()
    rows = draft.close(joined.cuts).rows
    if rows != equal:
        raise ValueError(f"{rows} of {equal} equal paths are in the manifest")
    return rows + left


def purge(work: Path) -> int:
    """Ask the proofs of every path of a tree, tree by tree, in the order of the scan; the number of proofs."""
    files = sorted((work / "catalogs" / CATALOGS[0]).glob("part-*.parquet"))
    found = 0
    for tree in open_closed(work / "catalogs" / CATALOGS[0]).record.trees[:: TREES // 4]:
        manifest = str(work / "manifests" / "bench" / MANIFEST_FILE)
        opened = open_proofs(
            manifest, tree.path, archives={}, archive_directory=b"", skipped=(), newer=(), scratch=_scratch(work)
        )
        with opened as proofs, connect(_scratch(work)) as connection:
            asked = connection.execute(
                "SELECT path FROM read_parquet(?) WHERE tree = ?", [[str(file) for file in files], tree.path]
            )
            while rows := asked.fetchmany(ASKED_AT_ONCE):
                found += len(proofs.of_block([path for (path,) in rows]))
    return found


JOBS: dict[str, Callable[[Path], int]] = {
    "plan": plan,
    "a comparison with 1 % changed": delta,
    "a search for extras": extras,
    "a verification with 1 % changed": verification,
    "the proofs of a purge, five trees": purge,
}


def _catalogs(work: Path) -> ClosedCatalogs:
    records = {name: open_closed(work / "catalogs" / name).record for name in CATALOGS}
    return ClosedCatalogs(work / "catalogs", records.get)


def _scratch(work: Path) -> Scratch:
    return Scratch(work / "tmp", MEMORY_BYTES)


def scale(options: Options) -> Section:
    """Every job in a process of its own. Fails where it lists less or more than there is."""
    facts = {
        "memory": f"`[site] memory` is {format_size(MEMORY_BYTES)}; peaks are of the whole process",
        "paths": f"in {TREES + 1} trees, 40 in a directory, 2 % with two names",
    }
    measured: dict[tuple[int, str], _Measured] = {}
    sizes = sorted({options.count(one, at_least=1000) for one in (LARGE_PATHS if options.large else PATHS)})
    for paths in sizes:
        work = options.directory / f"scale-{paths}"
        shutil.rmtree(work, ignore_errors=True)
        try:
            for number, name in enumerate(CATALOGS, start=1):
                write_catalog(work / "catalogs" / name, paths, scan_id=number)
            write_readings(work)
            for job in JOBS:
                one = measured[paths, job] = _measured(job, work)
                facts[f"{paths:,} paths, {job}"] = one.words()
                say(f"{NAME}: {paths:,} paths, {job}: {one.words()}")
        finally:
            shutil.rmtree(work, ignore_errors=True)
    for fewer, more in pairwise(sizes):
        grown = (f"{job} {measured[more, job].processor_s / measured[fewer, job].processor_s:.1f}" for job in JOBS)
        n_log_n = more * math.log(more) / (fewer * math.log(fewer))
        facts[f"growth from {fewer:,} to {more:,} paths"] = (
            f"of processor time, where n log n is {n_log_n:.1f}: {', '.join(grown)}"
        )
    return Section(name=NAME, title="Size: time, memory and disk", facts=facts, tables=())


class _Measured(NamedTuple):
    """One job over so many paths; the peaks are of its process and of its files."""

    found: int
    elapsed_s: float
    processor_s: float
    memory_bytes: int
    disk_bytes: int = 0

    def words(self) -> str:
        return (
            f"{self.found:,} found in {self.elapsed_s:.1f} s ({self.processor_s:.1f} s of processor time), at most "
            f"{format_size(self.memory_bytes)} of memory and {format_size(self.disk_bytes)} of disk"
        )


def _measured(job: str, work: Path) -> _Measured:
    before_bytes, most_bytes = _disk_bytes(work), 0
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        future = pool.submit(_run, job, work)
        while not wait([future], timeout=0.5).done:
            most_bytes = max(most_bytes, _disk_bytes(work) - before_bytes)
        return future.result()._replace(disk_bytes=most_bytes)


def _run(job: str, work: Path) -> _Measured:
    begun_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    found = JOBS[job](work)
    elapsed_s, after = time.monotonic() - begun_s, resource.getrusage(resource.RUSAGE_SELF)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return _Measured(found, elapsed_s, processor_s, after.ru_maxrss * 1024)


def _disk_bytes(directory: Path) -> int:
    blocks = 0
    for file in directory.rglob("*"):
        with suppress(FileNotFoundError):
            blocks += file.stat().st_blocks
    return blocks * 512
