"""Delta passes: what changed between two catalogs; moves, deletions, trash."""
