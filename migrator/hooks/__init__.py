"""Hooks: executables of the site that are called before and after steps."""
