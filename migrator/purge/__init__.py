"""`purge`: frees the source of moved users, after every file is proven to be on the target."""
