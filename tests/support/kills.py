"""The harness for tracked operations: the program is killed before every call, from the same beginning."""

import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.fs.model import TargetCapabilities
from migrator.hooks.calls import Hooks
from migrator.hooks.model import Hook, HookCall, HookEvent, HookResult, HooksFound, HookStep, all_stages
from migrator.hosts.ports import Processes
from tests.support.catalogs import whole_catalog
from tests.support.fake_filesystem import IDENTITY
from tests.support.records import site_record

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Killed(BaseException):
    """The program was killed: nothing that it calls does anything any more."""


@dataclass(slots=True)
class Death:
    """Kills at the `left`-th call of anything that is wrapped, and at every later one."""

    left: int

    def tick(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Killed

    @property
    def happened(self) -> bool:
        return self.left <= 0


class Dying:
    """Anything, wrapped so that the `Death` may come before each of its calls."""

    def __init__(self, wrapped: Any, death: Death) -> None:
        self._wrapped = wrapped
        self._death = death

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if not callable(found):
            return found if isinstance(found, int | float | str | bytes) else Dying(found, self._death)

        def call(*args: Any, **kwargs: Any) -> Any:
            # A sign of life comes by the clock, between calls that depend on the one before: it would make their number random.
            if name not in ("heartbeat", "write", "later"):
                self._death.tick()
            return found(*args, **kwargs)

        return call


def dying(wrapped: T, death: Death) -> T:
    """Wrap something, with the type that it has."""
    return Dying(wrapped, death)  # type: ignore[return-value]


def deaths() -> Iterator[Death]:
    """Before the first call, before the second one, and so on, until the whole way was gone alive."""
    for left in itertools.count(1):
        death = Death(left=left)
        yield death
        if not death.happened:
            return


def ticking(function: Callable[P, R], death: Death) -> Callable[P, R]:
    """A function that the death may come before."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        death.tick()
        return function(*args, **kwargs)

    return call


def new_ledger(path: Path) -> Path:
    """A ledger that knows a site and one whole catalog of its bricks."""
    with MigrationLedger.open(path, create=True) as ledger:
        ledger.site.create(
            site_record(IDENTITY, site_id="s", capabilities=TargetCapabilities(), capabilities_probed_at_s=1.0)
        )
        ledger.scans.finish(
            whole_catalog(
                scan_id=ledger.scans.start(catalog="c1", via="bricks", at_s=1.0), rows=9, files=9, directories=0
            )
        )
    return path


@contextmanager
def copied(ledger: Path, to: Path) -> Iterator[MigrationLedger]:
    """The same beginning once more."""
    shutil.copyfile(ledger, to)
    with MigrationLedger.open(to) as opened:
        yield opened
    to.unlink()


@dataclass
class Left:
    """What killed programs have left behind. The way on from equal remains is the same one: it is gone once."""

    _seen: set[str] = field(default_factory=set)

    def is_new(self, ledger: Path, *world: object) -> bool:
        """Whether nobody has left just this: every row of the ledger, and what is simulated (by its `repr`)."""
        with closing(sqlite3.connect(ledger)) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
            rows = [database.execute(f'SELECT * FROM "{table}"').fetchall() for (table,) in tables]
        remains = repr((rows, world))
        new = remains not in self._seen
        self._seen.add(remains)
        return new


class Killable(Protocol):
    """A simulated site of one kind of operation."""

    @property
    def state(self) -> StrEnum | None:
        """Of the operation, by the ledger; None where there is none."""

    def has_left(self) -> tuple[object, ...]:
        """What is simulated, as it lies there."""


SiteT = TypeVar("SiteT", bound=Killable)


def killed_everywhere(
    prepared: Path, make: Callable[[MigrationLedger], SiteT], run: Callable[[SiteT, Death], object], died_in: set[Any]
) -> Iterator[tuple[SiteT, bool]]:
    """A site for all that a command killed before every call can leave, and whether it was killed."""
    left, at = Left(), prepared.parent / "ledger.db"
    for death in deaths():
        with copied(prepared, at) as ledger:
            site = make(ledger)
            with suppress(Killed):
                run(site, death)
            died_in.add(site.state)
            if left.is_new(at, *site.has_left()):
                yield site, death.happened


@dataclass
class InventedHooks(Hooks):
    """Hooks of no site, which start no process."""

    processes: Processes = field(init=False, repr=False)
    directory: bytes = field(default=b"/hooks", kw_only=True)
    site_file: bytes = field(default=b"/site.toml", kw_only=True)
    source_root: bytes = field(default=b"/src", kw_only=True)
    target_root: bytes = field(default=b"/dst", kw_only=True)
    timeout_s: float = field(default=600.0, kw_only=True)


@dataclass
class DoingHooks(InventedHooks):
    """One hook on every side of these steps; the `pre` ones do something on what is simulated. `exit_codes` are by
    stage, where they are not 0. `reasons` is what `post` hooks were told besides the state.
    """

    deeds: Mapping[HookStep, Callable[[], None]] = field(default_factory=dict, repr=False)
    calls: list[tuple[str, str]] = field(default_factory=list)
    exit_codes: dict[str, int] = field(default_factory=dict)
    reasons: list[tuple[str, str, str]] = field(default_factory=list)
    tokens_given: int = 0

    def new_token(self) -> str:
        """One that no call of a hook has had: the ledger takes none twice."""
        self.tokens_given += 1
        return f"token-{self.tokens_given}"

    def find(self) -> HooksFound:
        stages = [stage for stage in all_stages() if stage.step in self.deeds]
        return HooksFound(hooks=tuple(Hook(stage=stage, name=b"50-do", path=b"/hooks/50-do") for stage in stages))

    async def call(self, call: HookCall) -> HookResult:
        stage = call.hook.stage
        if stage.event is HookEvent.PRE:
            self.deeds[stage.step]()
        told = dict(call.environment)
        self.calls.append((stage.name, told["MIGRATOR_STATE"]))
        if told["MIGRATOR_REASON"]:
            self.reasons.append((stage.name, told["MIGRATOR_FAILED"], told["MIGRATOR_REASON"]))
        return HookResult(exit_code=self.exit_codes.get(stage.name, 0))

    async def end(self, _: str) -> bool:
        return True

    def called(self) -> list[tuple[str, str]]:
        """What was called since the last question."""
        calls, self.calls = self.calls, []
        return calls

    def told(self) -> list[str]:
        """Which steps the `post` hooks were told to be done, each once, in order."""
        return list(dict.fromkeys(stage for stage, state in self.calls if state == "done"))


@dataclass
class WaitingHooks(DoingHooks):
    """A hook that waits before the one that does something; `meanwhile` is done while the one of a step waits."""

    meanwhile: Mapping[HookStep, Callable[[], None]] = field(default_factory=dict, repr=False)

    def find(self) -> HooksFound:
        doing = super().find().hooks
        waiting = [replace(hook, name=b"10-wait") for hook in doing if hook.stage.event is HookEvent.PRE]
        return HooksFound(hooks=(*waiting, *doing))

    async def call(self, call: HookCall) -> HookResult:
        if call.hook.name != b"10-wait":
            return await super().call(call)
        self.meanwhile.get(call.hook.stage.step, lambda: None)()
        return HookResult(exit_code=0)
