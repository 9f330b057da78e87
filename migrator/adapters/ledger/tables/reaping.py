"""Archives, and what was given up for deletion with the source."""

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, Table, UniqueConstraint

from migrator.adapters.ledger.tables.columns import PlainText, metadata, required

# Archives of old and tiny files in user trees on the target. `number` is the name of an archive in its tree.
archives = Table(
    "archives",
    metadata,
    Column("id", Integer, primary_key=True),
    required("plan", PlainText),
    required("batch", Integer),
    required("tree", LargeBinary),
    required("number", Integer),
    required("members", Integer),
    required("content_bytes", Integer),
    required("archive_bytes", Integer),
    required("index_bytes", Integer),
    required("archive_digest", PlainText),
    required("index_digest", PlainText),
    required("state", PlainText),
    required("at_s", Float),
    required("reason", PlainText),
    UniqueConstraint("tree", "number"),
    Index("ix_archives_plan", "plan", "batch"),
)

# Skipped paths that somebody gave up for deletion with the source. `pattern` is a path below the tree, or a glob.
reap_releases = Table(
    "reap_releases",
    metadata,
    Column("id", Integer, primary_key=True),
    required("tree", LargeBinary),
    required("pattern", LargeBinary),
    required("is_glob", Integer),
    required("by", PlainText),
    required("at_s", Float),
)
