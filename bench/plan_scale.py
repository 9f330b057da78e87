"""Time and memory of planning over a synthetic catalog: 10^7 rows in at most 1 GB and 120 s on 2 cores."""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from migrator.catalog.database import connect
from migrator.catalog.files import ClosedCatalogs, close_catalog, open_closed, part_name
from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import Scratch
from migrator.core.entry import UserTree
from migrator.core.units import GIB, TIB
from migrator.fs.model import Capacity, MountIdentity
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.ledger.model import SiteRecord
from migrator.plan.chunk_lists import ChunkListFiles
from migrator.plan.document import PlanFiles
from migrator.plan.stage import PlanRequest, make_plan
from migrator.plan.store import CatalogQueryFiles
from migrator.site.config import Site, SiteSection, SourceSection, TargetSection, UsersSection
from tests.support.beegfs_like import BEEGFS_CAPABILITIES

TREES = 200
PART_ROWS = 100_000
NOW_S = 1_800_000_000
SITE_ID = "00000000-0000-4000-8000-000000000000"
LIMIT_S = 120.0
LIMIT_BYTES = GIB

# 40 rows a directory, the first of them the directory itself; a tree's rows come in runs of 4,000, the trees mixed as
# a parallel scan mixes them, and some trees hold far more than others. 2 % of the rows have two names in their tree,
# one row in 10,000 has its second name in another tree.
ROWS = """
    SELECT
        (CASE WHEN i % 40 = 0 THEN directory ELSE directory || '/result-' || i || '.dat' END)::BLOB AS path,
        tree::BLOB AS tree, NULL::VARCHAR AS brick,
        CASE WHEN i % 40 = 0 THEN 'directory' WHEN i % 1000 = 3 THEN 'symlink' ELSE 'file' END AS type,
        CASE WHEN i % 40 = 0 THEN 4096 WHEN i % 1000 = 3 THEN 20
            ELSE (exp(6 + 14 * pow((hash(i) % 100000) / 100000.0, 3)))::BIGINT END AS size,
        (size + 511) // 512 AS blocks,
        (1000 + place)::UINTEGER AS uid, 100::UINTEGER AS gid, 420::INTEGER AS mode,
        ($now - hash(i + 1) % 150000000)::BIGINT * 1000000000 + hash(i) % 1000000000 AS mtime_ns,
        ($now - hash(i + 2) % 50000000)::BIGINT * 1000000000 AS atime_ns,
        mtime_ns AS ctime_ns, 64::UBIGINT AS dev, 0::UBIGINT AS rdev,
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


def write_catalog(directory: Path, rows: int) -> CatalogRecord:
    """A closed catalog of so many rows."""
    directory.mkdir(parents=True)
    parts: list[str] = []
    with connect(Scratch(directory.parent / "tmp", GIB)) as connection:
        connection.execute("SET preserve_insertion_order = true")
        for number, first in enumerate(range(0, rows, PART_ROWS)):
            file = directory / part_name(number)
            last = min(first + PART_ROWS, rows)
            query = ROWS.replace("$now", str(NOW_S)).replace("$first", str(first)).replace("$last", str(last))
            connection.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
            parts.append(file.name)
    record = CatalogRecord(
        name=directory.name,
        scan_id=1,
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


def _ledger(file: Path, catalog: str) -> Ledger:
    """A real ledger that knows the site and the scan."""
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
    ledger = open_ledger(file, create=True)
    ledger.site.create(record)
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


def plan(work: Path) -> dict[str, object]:
    """Plan over the catalog in `work`; to be measured in a process of its own."""
    site = Site(
        file=work / "site.toml",
        site=SiteSection(name="bench", state_dir=work, plans_dir=work / "plans", hooks_dir=work / "hooks"),
        source=SourceSection(kind="posix", mount=Path("/mnt/source")),
        target=TargetSection(kind="beegfs", mount=Path("/mnt/target")),
        users=UsersSection(trees=("home/*",)),
    )
    ledger = _ledger(work / "ledger.db", "scan-1")
    begun_s = time.monotonic()
    result = make_plan(
        PlanRequest(accept_unknown_inodes=True),
        site=site,
        catalogs=CatalogQueryFiles(
            ClosedCatalogs(work / "catalogs", ledger.scans.named), scratch=Scratch(work / "tmp", GIB // 2)
        ),
        documents=PlanFiles(site.site.plans_dir, site_id=SITE_ID),
        lists=ChunkListFiles(site.site.plans_dir, splits_dir=work / "splits", passes_dir=work / "passes"),
        ledger=ledger,
        quotas=(),
        capacity=Capacity(total_bytes=1000 * TIB, free_bytes=900 * TIB, total_inodes=None, free_inodes=None),
        clock=_Clock(),
    )
    elapsed_s = time.monotonic() - begun_s
    ledger.close()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "elapsed_s": round(elapsed_s, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "batches": len(result.plan.batches),
        "chunks": sum(batch.chunks for batch in result.plan.batches),
        "listed_files": sum(batch.files for batch in result.plan.batches),
        "listed_directories": sum(batch.directories for batch in result.plan.batches),
        "surprises": len(result.plan.surprises),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench plan-scale", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--output", type=Path, default=None, help="also write the figures to this JSON file")
    parser.add_argument("--work", type=Path, default=None, help="directory for the catalog (default: temporary)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(plan(options.work)))
        return 0
    with tempfile.TemporaryDirectory(prefix="plan-scale-", dir=options.work) as name:
        work = Path(name)
        begun_s = time.monotonic()
        write_catalog(work / "catalogs" / "scan-1", options.rows)
        generated_s = time.monotonic() - begun_s
        child = subprocess.run(
            [sys.executable, "-m", "bench", "plan-scale", "--child", "--work", str(work)],
            stdout=subprocess.PIPE,
            check=True,
        )
        figures: dict[str, object] = {
            "rows": options.rows,
            "cores": len(os.sched_getaffinity(0)),
            "load_before": os.getloadavg()[0],
            "generate_s": round(generated_s, 2),
            **json.loads(child.stdout),
        }
    text = json.dumps(figures, indent=1)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")
    elapsed_s, peak_bytes = float(str(figures["elapsed_s"])), int(str(figures["peak_rss_bytes"]))
    within = elapsed_s <= LIMIT_S and peak_bytes <= LIMIT_BYTES
    print(f"{'within' if within else 'BEYOND'} the limits of {LIMIT_S:.0f} s and 1 GiB", file=sys.stderr)
    return 0 if within else 1
