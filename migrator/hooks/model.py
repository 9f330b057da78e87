"""Hooks: the steps that call them, and the document that each gets. Pure."""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import UserTree
from migrator.core.states import PassKind

CONTRACT_VERSION = 1
"""The version of a hook's document and variables. A version may gain keys; a changed key is a new version."""

SKIP_EXIT_CODE = 62
"""A `pre` hook that exits with it skips its step, and the run continues."""

OUTPUT_LIMIT_BYTES = 16 << 10
"""How much of a hook's output is kept, from its end."""


class HookEvent(StrEnum):
    """The side of a step."""

    PRE = "pre"
    POST = "post"


class HookStep(StrEnum):
    """The steps with hooks."""

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
    ATTACH = "attach"
    FAIL = "fail"
    RETIRE = "retire"
    REPORT = "report"


WITHOUT_PRE = frozenset({HookStep.FAIL})
"""Steps that are events, so that nothing can be called before them."""


class HookState(StrEnum):
    """The outcome of a step, for its `post` hooks."""

    DONE = "done"
    STOPPED = "stopped"
    SKIPPED = "skipped"
    REFUSED = "refused"
    FAILED = "failed"


class HookStage(Struct, frozen=True, kw_only=True, order=True):
    """One side of one step, as `pre-batch`; its hooks lie in `pre-batch.d`."""

    step: HookStep
    event: HookEvent

    @property
    def name(self) -> str:
        return f"{self.event.value}-{self.step.value}"

    @property
    def directory(self) -> bytes:
        return self.name.encode("ascii") + b".d"


def all_stages() -> Iterator[HookStage]:
    """Every stage, in the order of a migration."""
    for step in HookStep:
        for event in HookEvent:
            if event is HookEvent.POST or step not in WITHOUT_PRE:
                yield HookStage(step=step, event=event)


class Hook(Struct, frozen=True, kw_only=True):
    """One executable that may be called. `name` is that of the file, `path` is absolute."""

    stage: HookStage
    name: bytes
    path: bytes


class HookProblem(Struct, frozen=True):
    """Why a hook is refused, and how to fix it."""

    path: bytes
    message: str
    fix: str


class HooksFound(Struct, frozen=True, kw_only=True):
    """All hooks, unordered, and all problems."""

    hooks: tuple[Hook, ...] = ()
    problems: tuple[HookProblem, ...] = ()


class HookSite(Struct, frozen=True, kw_only=True):
    """The site, for every hook. `file` is site.toml; trees lie below the two roots. All are absolute."""

    site_id: str
    name: str
    file: bytes
    source_root: bytes
    target_root: bytes


class HookFacts(Struct, frozen=True, kw_only=True):
    """The facts of a step; None if a fact has no meaning there, or is not known yet. A hook's document has them in this order.

    In steps of one user (announcement, freeze, switch, thaw), `user` is their name, `link` the path that they use
    (None if a hook makes the switch), `old_path` and `new_path` are the absolute paths to which it leads before and
    after the switch. `back`: the step belongs to a rollback. `freeze_s` is predicted, `frozen_s` measured. `moved` is
    known around a thaw: False if the user stays where they were, for `reason`.

    Before a purge, `manifest` is the absolute path of the newest manifest of the tree, `digest` the algorithm of its
    digests, and `archives` the directory for answers.

    `report` is the absolute directory of a report that is sent. `notice` is the absolute path of the mail text of a user
    who is told of a cutover; beside it are their page and calendar. `notices` is the directory of those of all users.

    `side` is the file system that gets the bricks, `source` or `target`.

    `failed` is the step that failed; `reason` says why, also for an audit with findings.

    `state` is empty before the step, and a `HookState` afterwards. `files` and `size_bytes` are planned, the
    `copied_` ones are of this run. `begins_at_s` is when an announced move begins. Times are seconds since the epoch.
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
    manifest: bytes | None = None
    digest: str | None = None
    archives: bytes | None = None
    report: bytes | None = None
    notice: bytes | None = None
    notices: bytes | None = None
    begins_at_s: float | None = None
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


class HookCall(Struct, frozen=True, kw_only=True):
    """One call: `document` is its standard input, `environment` is added to the usual variables. All processes of the
    hook carry the token.
    """

    hook: Hook
    document: bytes
    environment: tuple[tuple[str, str], ...]
    token: str


class HookResult(Struct, frozen=True, kw_only=True):
    """How a call ended. `exit_code` is minus the number of the signal that ended it, None if the hook could not be
    started (`problem` says why). `output` is the end of standard output and standard error, interleaved.
    """

    exit_code: int | None
    timed_out: bool = False
    output: bytes = b""
    problem: str = ""


class HookOutcome(StrEnum):
    """The meaning of a call: only `pre` hooks `skip` and `refuse`, only `post` hooks `warn`; `interrupted` calls were
    ended by this program, or their end is unknown.
    """

    GO_ON = "go-on"
    SKIP = "skip"
    REFUSE = "refuse"
    WARN = "warn"
    INTERRUPTED = "interrupted"


# Records of hooked steps and of calls.


class HookStepRecord(Struct, frozen=True, kw_only=True):
    """A step with hooks around it. It is open from before its `pre` hooks until after its `post` hooks; `state` is
    empty until then.
    """

    id: int
    step: HookStep
    subject: str
    opened_at_s: float
    state: str = ""


class HookCallRecord(Struct, frozen=True, kw_only=True):
    """One call of a hook. Its result is unknown while `finished_at_s` is None. `stage` is, for example, `pre-batch`."""

    id: int
    step_id: int
    stage: str
    name: bytes
    token: str
    started_at_s: float
    finished_at_s: float | None
    exit_code: int | None
    outcome: HookOutcome | None
    output: bytes
