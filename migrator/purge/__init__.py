"""`purge`: free the source of moved users, against proof of every file."""
