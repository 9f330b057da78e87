"""File systems that are migrated from and to."""
