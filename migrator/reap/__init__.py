"""`reap`: list, archive, skip and restore old and tiny files."""
