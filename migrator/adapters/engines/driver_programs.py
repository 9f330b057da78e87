"""Finding fpsync and parsyncfp2, and what they need, on this host."""

import os
import shutil
from pathlib import Path

from migrator.adapters.engines.fpsync import FpsyncPrograms
from migrator.adapters.engines.parsyncfp2 import Parsyncfp2Programs
from migrator.decide.parsyncfp2_outcome import parse_features
from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show

_SCRIPT_BYTES = 1 << 20
_HELPERS = ("fpart", "rsync", "scut", "stats", "perl", "ps", "awk", "ip")
"""What parsyncfp2 cannot do without; it says so of few of them."""


def locate_fpsync(*, path: str | None = None) -> FpsyncPrograms:
    """fpsync, fpart and rsync; `path` as in the environment. Raises ToolFailed."""
    install = "apt install fpart rsync"
    return FpsyncPrograms(
        fpsync=_find("fpsync", path, install), fpart=_find("fpart", path, install), rsync=_find("rsync", path, install)
    )


def locate_parsyncfp2(*, path: str | None = None) -> Parsyncfp2Programs:
    """parsyncfp2 and its helpers. Raises ToolFailed, also for a version that copies to no mounted file system."""
    install = "copy parsyncfp2, scut and stats from its repository into /usr/local/bin; apt install fpart iproute2"
    program = _find("parsyncfp2", path, install)
    helpers = tuple(_find(name, path, install) for name in _HELPERS)
    try:
        with Path(os.fsdecode(program)).open("rb") as file:
            features = parse_features(file.read(_SCRIPT_BYTES))
    except OSError as error:
        raise ToolFailed(f"{show(program)} cannot be read: {error.strerror}") from error
    if features is None:
        raise ToolFailed(f"{show(program)} is no parsyncfp2: it does not tell its version", hint=install)
    if problem := features.problem():
        raise ToolFailed(problem, hint=install)
    return Parsyncfp2Programs(program=program, helpers=helpers, features=features)


def _find(name: str, path: str | None, install: str) -> bytes:
    found = shutil.which(name, path=path)
    if found is None:
        raise ToolFailed(f"{name} was not found", cause="it is not installed on this host", hint=install)
    return os.path.abspath(os.fsencode(found))
