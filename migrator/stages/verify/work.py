"""Worker threads over two stacks of work, with memory that stays flat."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

_STOP_GRACE_S = 5.0
"""How long a stopped pool waits for its threads. One that reads a huge file is left behind: it only reads."""
_WAITING_PER_WORKER = 4

Wide = TypeVar("Wide")
Narrow = TypeVar("Narrow")


class WorkPool(Generic[Wide, Narrow]):
    """Threads that take `Wide` tasks (directories), which make more of both kinds, and `Narrow` ones (files to read).

    Narrow tasks go first and are bounded in number: where too many wait, whoever makes one does it at once. Wide ones
    are taken last in, first out, so that as few as possible wait.
    """

    def __init__(self, workers: int, *, do_wide: Callable[[Wide], None], do_narrow: Callable[[Narrow], None]) -> None:
        self._workers = max(workers, 1)
        self._do_wide = do_wide
        self._do_narrow = do_narrow
        self._wide: list[Wide] = []
        self._narrow: deque[Narrow] = deque()
        self._busy = 0
        self._changed = threading.Condition()
        self._stopped = False
        self._failure: BaseException | None = None

    @property
    def stopped(self) -> bool:
        """Whether the work is to end early; long tasks ask now and then."""
        return self._stopped

    def put_wide(self, task: Wide) -> None:
        """More to do, later."""
        with self._changed:
            self._wide.append(task)
            self._changed.notify()

    def put_narrow(self, task: Narrow) -> None:
        """More to do, soon: now, by the caller, where many wait already."""
        with self._changed:
            if len(self._narrow) < self._workers * _WAITING_PER_WORKER:
                self._narrow.append(task)
                self._changed.notify()
                return
        self._do_narrow(task)

    async def run(self) -> None:
        """Work until nothing is left. Raises what a task raised; when cancelled, stops soon and leaves threads that
        are inside a long read to end by themselves.
        """
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        left = self._workers

        def one_ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                ended.set()

        def work() -> None:
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001 (supervision: raised again by `run`)
                self._stop(error)
            finally:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(one_ended)

        for number in range(self._workers):
            threading.Thread(target=work, name=f"verify-{number}", daemon=True).start()
        try:
            await ended.wait()
        except asyncio.CancelledError:
            self._stop(None)
            await asyncio.wait([asyncio.ensure_future(ended.wait())], timeout=_STOP_GRACE_S)
            raise
        if self._failure is not None:
            raise self._failure

    def _stop(self, failure: BaseException | None) -> None:
        with self._changed:
            self._stopped = True
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._stopped or self._narrow or self._wide) and self._busy:
                    self._changed.wait()
                if self._stopped or not (self._narrow or self._wide):
                    self._changed.notify_all()
                    return
                self._busy += 1
                narrow = self._narrow.popleft() if self._narrow else None
                wide = self._wide.pop() if narrow is None else None
            try:
                if narrow is not None:
                    self._do_narrow(narrow)
                elif wide is not None:
                    self._do_wide(wide)
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()
