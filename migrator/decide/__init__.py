"""Decisions as pure functions over domain values: no input or output, no clock, no randomness."""
