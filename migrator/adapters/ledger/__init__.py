"""The ledger: one SQLite database per site, its schema, its revisions, and the locks beside it."""
