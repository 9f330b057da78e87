"""`status`, `report`, `metrics`, `serve`: how far the migration is, and when it ends."""
