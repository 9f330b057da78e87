"""The ledger: one SQLite database per site, its tables, and the locks beside it."""
