"""What every view of progress is."""

from contextlib import AbstractContextManager
from typing import Protocol

from migrator.ports.progress import Progress


class ProgressView(Progress, AbstractContextManager[Progress], Protocol):
    """Progress that is shown until the end of a `with` block, where the last snapshot is shown once more."""
