"""The tables of the ledger. Units stand in the names of columns; paths are BLOBs; times are seconds since the epoch.

There is no row per file here (that is the catalog's part), except for files that need attention.
Before the first release the tables are the schema: a change raises `SCHEMA_VERSION`, and a ledger of another version is refused.
"""

from migrator.adapters.ledger.tables.benchmarking import benchmark_measurements, benchmarks
from migrator.adapters.ledger.tables.bricks import (
    addition_samples,
    addition_steps,
    additions,
    drain_samples,
    drain_steps,
    drains,
    retirements,
)
from migrator.adapters.ledger.tables.calls import events, hook_calls, hook_steps, runs, site
from migrator.adapters.ledger.tables.columns import metadata
from migrator.adapters.ledger.tables.cutting import cutover_steps, cutovers, target_backups, tree_measurements
from migrator.adapters.ledger.tables.governing import controls, governor_records, host_loads
from migrator.adapters.ledger.tables.measuring import capacity_samples, probes, samples, thinned_samples
from migrator.adapters.ledger.tables.planning import batch_trees, batches, plans, scans
from migrator.adapters.ledger.tables.reaping import archives, reap_releases
from migrator.adapters.ledger.tables.transferring import (
    UNFINISHED,
    attempts,
    attention,
    chunks,
    pass_changes,
    pass_trees,
    passes,
    predictions,
)
from migrator.adapters.ledger.tables.verifying import verifications

__all__ = [
    "APPLICATION_ID",
    "SCHEMA_VERSION",
    "UNFINISHED",
    "addition_samples",
    "addition_steps",
    "additions",
    "archives",
    "attempts",
    "attention",
    "batch_trees",
    "batches",
    "benchmark_measurements",
    "benchmarks",
    "capacity_samples",
    "chunks",
    "controls",
    "cutover_steps",
    "cutovers",
    "drain_samples",
    "drain_steps",
    "drains",
    "events",
    "governor_records",
    "hook_calls",
    "hook_steps",
    "host_loads",
    "metadata",
    "pass_changes",
    "pass_trees",
    "passes",
    "plans",
    "predictions",
    "probes",
    "reap_releases",
    "retirements",
    "runs",
    "samples",
    "scans",
    "site",
    "target_backups",
    "thinned_samples",
    "tree_measurements",
    "verifications",
]

APPLICATION_ID = 0x4D494752
"""Marks an SQLite file as a ledger ("MIGR"), in `PRAGMA application_id`."""
SCHEMA_VERSION = 1
"""The schema that this code reads and writes, in `PRAGMA user_version`; raise it with every change of the tables."""
