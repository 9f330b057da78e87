"""File systems: reading, writing and moving beneath a root, and what a file system keeps of a file."""
