"""The SQLite ledger, by SQLAlchemy and Alembic."""
