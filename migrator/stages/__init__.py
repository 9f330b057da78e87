"""The imperative shell: one module or package per stage of a migration."""
