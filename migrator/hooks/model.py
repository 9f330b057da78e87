"""Hooks: the steps that call them, and the document that each gets. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from migrator.core.entry import EntryType, UserTree
from migrator.core.states import PassKind

CONTRACT_VERSION = 1
"""Of the document and the variables that a hook gets. Keys may be added to a version; one that changes makes a new one."""

SKIP_EXIT_CODE = 62
"""A `pre` hook that ends with it stops its step, and the run goes on."""

"""Names the file that holds the text for a user."""

OUTPUT_LIMIT_BYTES = 16 << 10
"""How much of what a hook prints is kept: the end."""


class HookEvent(StrEnum):
    """On which side of a step."""

    PRE = "pre"
    POST = "post"


class HookStep(StrEnum):
    """What hooks are called around."""

    BATCH = "batch"
    PASS = "pass"
    ANNOUNCE = "announce"
    FREEZE = "freeze"
    SWITCH = "switch"
    THAW = "thaw"
    PURGE = "purge"
    DRAIN = "drain"
    AUDIT = "audit"
    COMMIT = "commit"
    WIPE = "wipe"
    HAND_OVER = "hand-over"
    STOP = "stop"
    ADD = "add"
    FAIL = "fail"
    RETIRE = "retire"
    REPORT = "report"


WITHOUT_PRE = frozenset({HookStep.FAIL})
"""What happens and is not begun: nobody can be asked before it."""


class HookState(StrEnum):
    """How a step ended, as its `post` hooks are told."""

    DONE = "done"
    STOPPED = "stopped"
    SKIPPED = "skipped"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HookStage:
    """One side of one step, as `pre-batch`; its hooks lie in the directory `pre-batch.d`."""

    step: HookStep
    event: HookEvent

    @property
    def name(self) -> str:
        """As a hook is told it."""
        return f"{self.event.value}-{self.step.value}"

    @property
    def directory(self) -> bytes:
        """The name of the directory that holds the hooks."""
        return self.name.encode("ascii") + b".d"


def all_stages() -> Iterator[HookStage]:
    """Every stage, in the order in which a migration comes to them."""
    for step in HookStep:
        for event in HookEvent:
            if event is HookEvent.POST or step not in WITHOUT_PRE:
                yield HookStage(step=step, event=event)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLook:
    """One look at a path, never through a symlink. `mode` holds the permission bits, with the sticky one."""

    path: bytes
    type: EntryType
    uid: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLook:
    """What lies in a directory `STAGE.d`; `unread` says why that is not known, empty where it is."""

    directory: FileLook
    entries: tuple[FileLook, ...] = ()
    unread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksLook:
    """What lies at `hooks_dir`: the directories from the root of the file system down to it, and those in it whose name
    ends in `.d`. `above` is empty where there is no such directory.
    """

    above: tuple[FileLook, ...] = ()
    stages: tuple[StageLook, ...] = ()
    unread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One executable that may be called. `name` is that of the file, `path` absolute."""

    stage: HookStage
    name: bytes
    path: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HookProblem:
    """Why a hook is refused, and how to mend it."""

    path: bytes
    message: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksFound:
    """All hooks, in no particular order, and all that speaks against calling any."""

    hooks: tuple[Hook, ...] = ()
    problems: tuple[HookProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSite:
    """What every hook is told of the site. `file` is site.toml; trees lie below the two roots. All absolute."""

    site_id: str
    name: str
    file: bytes
    source_root: bytes
    target_root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFacts:
    """What a hook is told of its step; None is what has no meaning there, or is not known yet.

    Of a step about one user (announcement, freeze, switch, thaw), `user` is his name, `link` the path that he works by (None where a hook
    makes the switch), `old_path` and `new_path` where it leads before the switch and after it, absolute. `back`: it is a rollback. `freeze_s` is
    predicted, `frozen_s` measured. `moved` is known around a thaw: False where the user stays where they were, for `reason`.

    `report` is the directory that holds a report that is sent, absolute.

    `side` is `source` or `target`: to which file system bricks are given.

    `failed` is what has failed, where that is told; `reason` says why, also of an audit that found something.

    `state` is empty before the step, afterwards a `HookState`. `files` and
    `size_bytes` are planned, the `copied_` ones what this run brought. `begins_at_s` is
    when a move that is announced begins. Times are seconds since the epoch.
    """

    run_id: int
    plan: str | None = None
    batch: int | None = None
    pass_kind: PassKind | None = None
    pass_number: int | None = None
    brick: str | None = None
    side: str | None = None
    trees: tuple[UserTree, ...] = ()
    user: str | None = None
    link: bytes | None = None
    old_path: bytes | None = None
    new_path: bytes | None = None
    back: bool | None = None
    freeze_s: float | None = None
    frozen_s: float | None = None
    moved: bool | None = None
    files: int | None = None
    size_bytes: int | None = None
    state: str = ""
    failed: HookStep | None = None
    reason: str | None = None
    copied_files: int | None = None
    copied_bytes: int | None = None
    attention: int | None = None
    started_at_s: float
    finished_at_s: float | None = None
    begins_at_s: float | None = None
    report: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """One call: `document` goes to standard input, `environment` beside the usual variables. Every process of the hook
    carries the token.
    """

    hook: Hook
    document: bytes
    environment: tuple[tuple[str, str], ...]
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """How a call ended. `exit_code` is minus the signal's number where a signal ended it, None where the hook could not
    be started (`problem` says why). `output` is the end of both its outputs, as they came.
    """

    exit_code: int | None
    timed_out: bool = False
    output: bytes = b""
    problem: str = ""


class HookOutcome(StrEnum):
    """What a call means: `skip` and `refuse` only come from `pre` hooks, `warn` only from `post` ones; `interrupted` ones
    were ended by this program, or nobody saw their end.
    """

    GO_ON = "go-on"
    SKIP = "skip"
    REFUSE = "refuse"
    WARN = "warn"
    INTERRUPTED = "interrupted"
