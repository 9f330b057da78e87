"""`status`, `report`, `metrics`, `serve`: the progress of the migration, and its expected end."""
