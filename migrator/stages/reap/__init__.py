"""Reaping: archives of old and tiny files, and what is put back from them."""
