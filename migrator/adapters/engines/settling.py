"""The second step after rsync has copied from a brick: the `Settler` port, by the compiled program, or by a script where
that is not to be had.
"""

from migrator.adapters.engines import settle_times
from migrator.adapters.engines.direct import DirectEngine, DirectReader, records
from migrator.domain.states import ChunkKind
from migrator.ports.processes import Command, Processes
from migrator.ports.streams import ChunkWork, StreamReader, StreamView

SCRIPT_FILE = settle_times.__file__
"""To be placed on the host: nothing else is needed there but Python 3.9."""


class NativeSettling:
    """By the compiled program, confined as streams are."""

    confined = True

    def __init__(self, engine: DirectEngine, processes: Processes) -> None:
        self._engine = engine
        self._processes = processes

    @property
    def program(self) -> bytes:
        """The executable's absolute path."""
        return self._engine.program

    @property
    def processes(self) -> Processes:
        """The programs of its host."""
        return self._processes

    def settle_command(self, work: ChunkWork, view: StreamView) -> Command | None:
        """Set the times that the volume shows, and tell the names that were no data. None: nothing is to be settled."""
        return self._engine.settle_command(work, view)

    def reader(self, work: ChunkWork, view: StreamView) -> StreamReader:
        """A new reader for one run; its outcome has `moved`, `changed`, `vanished` and bad paths as suspects."""
        return self._engine.reader(work, view)


class PythonSettling:
    """By a script: run as it is, on the host itself and not confined, by root.

    `python` and `script` are paths on that host; so are the roots, of which the trees lie beneath.
    """

    confined = False

    def __init__(
        self, processes: Processes, *, python: bytes, script: bytes, source_root: bytes, target_root: bytes
    ) -> None:
        self._processes = processes
        self._python = python
        self._script = script
        self._source_root = source_root
        self._target_root = target_root

    @property
    def program(self) -> bytes:
        """The executable's absolute path."""
        return self._python

    @property
    def processes(self) -> Processes:
        """The programs of its host."""
        return self._processes

    def settle_command(self, work: ChunkWork, view: StreamView) -> Command | None:  # noqa: ARG002 (not confined)
        """Set the times that the volume shows, and tell the names that were no data. None: nothing is to be settled."""
        kinds = (ChunkKind.FILES, ChunkKind.RANGED_FILES, ChunkKind.DIRECTORY_TIMES)
        if work.brick is None or work.kind not in kinds:
            return None
        return Command(
            argv=(
                *(self._python, b"-I", b"-S", self._script),
                *(b"--source-root", self._source_root, b"--target-root", self._target_root, b"--tree", work.tree),
                *(b"--times", b"mdata" if work.brick.times_from_mdata else b"file"),
                *(b"--granularity-ns", b"%d" % work.capabilities.time_granularity_ns),
                *((b"--symlink-times",) if work.capabilities.keeps_symlink_times else ()),
            ),
            stdin=records(work),
            timeout_s=None,
        )

    def reader(self, work: ChunkWork, view: StreamView) -> StreamReader:  # noqa: ARG002 (not confined)
        """A new reader for one run; its outcome has `moved`, `changed`, `vanished` and bad paths as suspects."""
        return DirectReader(work)
