"""The version of the program, with the commit that it was built from."""

from pathlib import Path

import migrator

_COMMIT = Path(migrator.__file__).with_name("commit")
"""Written by the build (setup.py); absent in a checkout, whose commit changes without a build."""


def version_and_commit() -> str:
    """Such as `1.0.0 (commit 1a2b3c4d5e6f)`; `-dirty` after the commit: the sources were changed. Only the version in a checkout."""
    try:
        commit = _COMMIT.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return migrator.__version__
    return f"{migrator.__version__} (commit {commit})"
