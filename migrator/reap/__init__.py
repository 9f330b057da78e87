"""`reap`: old and tiny files: listed, archived, skipped, restored."""
