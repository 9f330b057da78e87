"""Walking a brick in plain Python, for hosts where the compiled program cannot run."""

from migrator.adapters.far_source import far_source

_MODULES = ("walker_frames", "walker_attributes", "walker_root", "walker", "walker_main")
"""In the order in which they are loaded: each imports only earlier ones."""


def walker_program() -> bytes:
    """The walker as one file, to be placed on a host and run as `python3 FILE walk --brick PATH ...` with Python 3.9 or
    later and nothing else; always the same bytes.
    """
    return far_source(__package__, _MODULES)
