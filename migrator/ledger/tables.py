"""The tables of the ledger. Units are in the names of columns; paths are BLOBs; times are seconds since the epoch.

No table has a row per file, except for files that need attention: files are in the catalog. A change of a table needs a
revision in `migrations/versions` (`schema.py`).
"""

import re
from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class PlainText(sa.TypeDecorator[str]):
    """Text that can always be stored: lone surrogates, which UTF-8 cannot hold, become escapes."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Escape characters that cannot be encoded."""
        del dialect
        return None if value is None else storable(value)


def storable(value: str) -> str:
    """Text that can always be stored and shown."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


_TYPES = {"int": sa.Integer, "float": sa.Float, "text": PlainText, "bytes": sa.LargeBinary}
_COLUMN = re.compile(r"(?P<name>\w+):(?P<type>\w+)(?P<mark>[!?]?)(>(?P<refers>[\w.]+))?")


def _table(name: str, columns: str, *more: Any, **options: Any) -> sa.Table:  # noqa: ANN401 - as of SQLAlchemy's Table
    """A table of columns `name:type`. `!` marks the primary key, `?` a column that may be null; `>` names the column
    that it refers to.
    """
    made: list[sa.Column[Any]] = []
    for found in map(_COLUMN.fullmatch, columns.split()):
        if found is None:
            raise ValueError(columns)
        refers = [sa.ForeignKey(found["refers"])] if found["refers"] else []
        made.append(
            sa.Column(
                found["name"],
                _TYPES[found["type"]],
                *refers,
                primary_key=found["mark"] == "!",
                nullable=found["mark"] == "?",
            )
        )
    return sa.Table(name, metadata, *made, *more, **options)


# The site, runs, events, hooks.


# Which program made the tables as they are: a row at the ledger's creation, and one for each upgrade.
schema_versions = _table("schema_versions", "id:int! revision:text program:text at_s:float")

site = _table(
    "site",
    """
    id:int! site_id:text name:text created_at_s:float source:text target:text capabilities:text?
    capabilities_probed_at_s:float?
    """,
    sa.CheckConstraint("id = 1", name="one_row"),
)

runs = _table(
    "runs",
    """
    id:int! verb:text pid:int started_at_s:float heartbeat_at_s:float finished_at_s:float? exit_code:int?
    directory:text
    """,
)

# What the site's commands have begun, as in the journal on the target. A number is never used again.
journal = _table("journal", "id:int! token:text at_s:float what:text", sqlite_autoincrement=True)

events = _table(
    "events",
    "id:int! run_id:int?>runs.id at_s:float kind:text severity:text subject:text message:text",
    sa.Index("ix_events_severity", "severity"),
)

hook_steps = _table(
    "hook_steps",
    "id:int! run_id:int>runs.id step:text subject:text opened_at_s:float closed_at_s:float? state:text?",
    sa.Index("ix_hook_steps_open", "step", "subject", sqlite_where=sa.text("closed_at_s IS NULL")),
)

hook_calls = _table(
    "hook_calls",
    """
    id:int! step_id:int>hook_steps.id stage:text name:bytes token:text started_at_s:float
    finished_at_s:float? exit_code:int? outcome:text? output:bytes
    """,
    sa.UniqueConstraint("token"),
    sa.Index("ix_hook_calls_step_id", "step_id"),
    sa.Index("ix_hook_calls_unfinished", "id", sqlite_where=sa.text("finished_at_s IS NULL")),
)


# Scans and plans.


# `scope` has the paths of the covered user trees (none: the whole source), `strange` the files put on bricks without Gluster.
scans = _table(
    "scans",
    """
    id:int! catalog:text via:text scope:text started_at_s:float finished_at_s:float? trees:text parts:text
    whole:int reasons:text rows:int files:int directories:int size_bytes:int problems:int
    health_fingerprint:text strange:text digest:text set_apart:text selected_by:text
    """,
    sa.UniqueConstraint("catalog"),
)

# `scan_id` is no foreign key: a plan may be made from a catalog whose ledger was restored from an older backup.
plans = _table(
    "plans",
    """
    id:int! name:text path:text checksum:text created_at_s:float scan_id:int catalog:text size_bytes:int
    files:int directories:int cost:text forecast_s:float activated_at_s:float?
    """,
    sa.UniqueConstraint("name"),
)

batches = _table(
    "batches",
    """
    plan:text!>plans.name number:int! state:text size_bytes:int files:int directories:int chunks:int
    forecast_s:float
    """,
)

# `reaped_*` is the part of these bytes and files that is archived or skipped instead of copied.
batch_trees = _table(
    "batch_trees",
    """
    plan:text! batch:int! tree:bytes! user:text rank:int size_bytes:int files:int directories:int
    reaped_bytes:int reaped_files:int
    """,
    sa.ForeignKeyConstraint(["plan", "batch"], ["batches.plan", "batches.number"]),
)


# Passes, chunks, attempts, predictions.


UNFINISHED = sa.text("state IN ('intended', 'running')")
"""Attempts that a crash may have left. A query has to repeat the condition of the index word for word to use that index."""

passes = _table(
    "passes",
    """
    id:int! plan:text batch:int kind:text number:int state:text catalog:text base_catalog:text?
    chunk_list:text move_list:text? move_list_digest:text? moved_at_s:float? scan_s:float?
    started_at_s:float finished_at_s:float? total_files:int total_bytes:int
    """,
    sa.UniqueConstraint("plan", "batch", "kind", "number"),
    sa.CheckConstraint("(kind = 'seed') = (number = 0) AND number >= 0", name="number"),
)

# Changes before a pass after the seed: by tree, and by tree and kind of change.
pass_trees = _table(
    "pass_trees", "pass_id:int!>passes.id tree:bytes! names_before:int bytes_before:int", sqlite_with_rowid=False
)

pass_changes = _table(
    "pass_changes",
    "pass_id:int! tree:bytes! kind:text! paths:int directories:int size_bytes:int",
    sa.ForeignKeyConstraint(["pass_id", "tree"], ["pass_trees.pass_id", "pass_trees.tree"]),
    sqlite_with_rowid=False,
)

chunks = _table(
    "chunks",
    """
    id:int! pass_id:int>passes.id number:int kind:text tree:bytes files:int size_bytes:int state:text
    list_path:text? brick:text? parent_id:int?>chunks.id
    """,
    sa.UniqueConstraint("pass_id", "number"),
    # For pending chunks, the largest first, also of some bricks, and for the sums of a pass: no other row is read.
    sa.Index("ix_chunks_pending", "pass_id", "kind", "state", "size_bytes", "number", "brick"),
    sa.Index("ix_chunks_totals", "pass_id", "tree", "kind", "state", "files", "size_bytes"),
    sa.Index("ix_chunks_parent_id", "parent_id", sqlite_where=sa.text("parent_id IS NOT NULL")),
)

attempts = _table(
    "attempts",
    """
    id:int! chunk_id:int>chunks.id run_id:int>runs.id number:int token:text host:text engine:text state:text pid:int?
    start_ticks:int? boot_id:text? argv:text started_at_s:float finished_at_s:float? exit_code:int?
    files:int size_bytes:int stderr_tail:bytes
    """,
    sa.UniqueConstraint("token"),
    sa.UniqueConstraint("chunk_id", "number"),
    sa.Index("ix_attempts_unfinished", "state", sqlite_where=UNFINISHED),
    # Sums over attempts use only this index, because the rows are long: argv, the end of standard error.
    sa.Index("ix_attempts_results", "state", "chunk_id", "started_at_s", "finished_at_s", "files", "size_bytes"),
    sa.Index("ix_attempts_hosts", "host", "engine", "state", "files", "size_bytes"),
)

attention = _table(
    "attention",
    "pass_id:int!>passes.id path:bytes! chunk_id:int?>chunks.id kind:text errno:int? reason:text at_s:float",
    sa.Index("ix_attention_chunk_id", "chunk_id"),
    sa.Index("ix_attention_kind", "pass_id", "kind"),
    sqlite_with_rowid=False,
)

# The prediction after a pass. The churn by tree is JSON, because it is only read as a whole.
predictions = _table(
    "predictions",
    """
    pass_id:int!>passes.id at_s:float decision:text max_freeze_s:float next_pass_s:float freeze_s:float
    least_freeze_s:float churn_files_per_h:float churn_bytes_per_h:float churn_of_trees:text
    """,
)


# Measurements while a migration runs: throughput, capacity, latency.


# `attempt_id` 0 is the sum of all streams. Clustered by time, without a second index: this table grows by one row per
# stream every few seconds. Rows of a single stream are deleted when its attempt ends.
samples = _table(
    "samples",
    "pass_id:int!>passes.id attempt_id:int! at_s:float! interval_s:float streams:int files:int size_bytes:int",
    sqlite_with_rowid=False,
)

# Capacity of both sides: one row per side at the beginning and end of a run, and every hour between.
capacity_samples = _table(
    "capacity_samples",
    "side:text! at_s:float! total_bytes:int free_bytes:int total_inodes:int? free_inodes:int?",
    sqlite_with_rowid=False,
)

# The storage and metadata targets of a BeeGFS target: the newest sample of each day.
storage_samples = _table("storage_samples", "day:int! at_s:float targets:text")

# One row per minute and side; old rows are thinned out. A row without times had no answer, or failed.
probes = _table(
    "probes",
    """
    id:int! side:text at_s:float create_s:float? write_s:float? sync_s:float? stat_s:float? unlink_s:float?
    readdir_s:float? waited_s:float? failure:text
    """,
    sa.Index("ix_probes_side_at_s", "side", "at_s"),
)


# Limits set by operators, and those set by the governor.


# One row per command that pauses, resumes or tunes; the newest of each kind applies. `at_s` is the time of the command.
controls = _table(
    "controls",
    """
    id:int! kind:text at_s:float by:text paused:int reason:text jobs:int? bwlimit_bytes_per_s:int?
    max_latency_s:float? max_load:float?
    """,
    sa.Index("ix_controls_kind", "kind", "id"),
)

# Limits of a run from `at_s` on: a row for every change. Old rows are removed. `hosts` is JSON.
governor_records = _table(
    "governor_records",
    """
    id:int! run_id:int>runs.id at_s:float gate:text bound:text streams:int most:int hosts:text
    bwlimit_bytes_per_s:int? reason:text until_s:float? max_latency_s:float? max_load:float?
    """,
    sa.Index("ix_governor_records_run_id", "run_id"),
)

# The latest load of the hosts that have streams: all rows are replaced at once.
host_loads = _table("host_loads", "host:text! at_s:float load:float")


# Verifications.


verifications = _table(
    "verifications",
    """
    id:int! plan:text batch:int started_at_s:float finished_at_s:float? algorithm:text share:float seed:int
    paths:int size_bytes:int digested_files:int digested_bytes:int proven_gone:int differences:text
    expected:text whole:int reasons:text manifest:text? manifest_digest:text? files:int equal_paths:int
    differences_file:text? differences_digest:text? trees:text carried_files:int carried_bytes:int
    """,
    sa.Index("ix_verifications_plan", "plan", "batch"),
)


# Around cutovers: backups of the target, archives, speed of users' trees.


# Backups of the target, made by other software; `at_s` is when one began.
target_backups = _table(
    "target_backups", "id:int! tree:bytes at_s:float note:text", sa.Index("ix_target_backups_tree", "tree")
)

# Cutovers that users were told of, by the hooks of `announce`.
announcements = _table("announcements", "id:int! plan:text tree:bytes begins_at_s:float at_s:float")

# Limits on the target that were confirmed, in place of those of the source on `trees`.
owner_limits = _table("owner_limits", "uid:int! size_bytes:int trees:text")

# Archives of the site that are proven to hold a tree. `manifests` are the digests of the manifests that were compared.
second_copies = _table(
    "second_copies",
    """
    id:int! tree:bytes name:text place:text manifests:text algorithm:text files:int size_bytes:int extra:int
    list_digest:text at_s:float
    """,
    sa.Index("ix_second_copies_tree", "tree"),
)

# `cold` is null for tests that do not read; `amount` is lines or bytes.
tree_measurements = _table(
    "tree_measurements",
    """
    cutover_id:int!>operations.id side:text! run:int! test:text! at_s:float seconds:float amount:int
    complete:int cold:int? failure:text
    """,
    sqlite_with_rowid=False,
)


# Tracked operations.


# One row per attempt. `subject` is a tree, or bricks of a volume. `times` and `facts` are JSON, because they are only
# read as a whole.
operations = _table(
    "operations",
    "id:int! kind:text subject:bytes attempt:int state:text times:text failure:text facts:text",
    sa.UniqueConstraint("kind", "subject", "attempt"),
)

# The steps of operations, each with its intent and its result.
operation_steps = _table(
    "operation_steps",
    """
    id:int! operation_id:int>operations.id step:text intended_at_s:float ended_at_s:float? result:text?
    message:text
    """,
    sa.Index("ix_operation_steps_operation_id", "operation_id"),
)

# Gluster's counters over time. Clustered by time: one row per host and poll, for weeks.
operation_samples = _table(
    "operation_samples",
    """
    operation_id:int!>operations.id at_s:float! task_id:text! host:text! files:int size_bytes:int
    lookups:int failures:int skipped:int status:text runtime_s:float
    """,
    sqlite_with_rowid=False,
)


# Archives, and paths released for deletion with the source.


# Archives of old and tiny files in user trees on the target. `number` is the name of an archive in its tree.
archives = _table(
    "archives",
    """
    id:int! plan:text batch:int tree:bytes number:int members:int content_bytes:int archive_bytes:int
    index_bytes:int archive_digest:text index_digest:text state:text at_s:float reason:text
    """,
    sa.UniqueConstraint("tree", "number"),
    sa.Index("ix_archives_plan", "plan", "batch"),
)

# Skipped paths released for deletion with the source. `pattern` is a path below the tree, or a glob.
reap_releases = _table("reap_releases", "id:int! tree:bytes pattern:bytes is_glob:int by:text at_s:float")


# Benchmarks.


# One row per suite and call. `places`, `hosts` and `notes` are JSON, because they are only read as a whole.
benchmarks = _table(
    "benchmarks",
    """
    id:int! suite:text scale:float seed:int runs:int places:text hosts:text token:text state:text
    started_at_s:float ended_at_s:float? notes:text
    """,
)

# `document` is the whole measurement as JSON; value and unit are columns for queries by hand.
benchmark_measurements = _table(
    "benchmark_measurements",
    """
    benchmark_id:int!>benchmarks.id place:text! run:int! step:text! at_s:float value:float unit:text
    document:text
    """,
    sqlite_with_rowid=False,
)
