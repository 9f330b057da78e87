"""Whether streams still do something, as /proc tells it."""

from collections.abc import Mapping, Sequence

from migrator.adapters.executors import proc


class ProcActivity:
    """The `Activity` port for processes of this machine: bytes read and written, and time on the processor."""

    def of(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """A number for every token that living processes carry; it changes whenever one of them does something, or
        when one of them comes or goes. A process that hangs in the kernel does not change it.
        """
        return {
            token: sum(proc.work_done(process.pid) + process.pid for process in processes)
            for token, processes in proc.carriers(tokens).items()
        }
