"""Hooks that are only written down, for tests of when they are called."""

from collections.abc import Callable
from dataclasses import dataclass, field

from migrator.hooks.model import Hook, HookCall, HookProblem, HookResult, HooksFound, all_stages
from migrator.hooks.stage import Hooks
from migrator.hosts.ports import Processes

STAGES = {stage.name: stage for stage in all_stages()}


@dataclass
class FakeHooks(Hooks):
    """`hooks` gives the exit code of each, as `pre-freeze.d/10-a`; `calls` are what was called, with the state and
    the reason that it was told; `tokens` are those that were ended.
    """

    processes: Processes = field(init=False, repr=False)
    hooks: dict[str, int] = field(default_factory=dict)
    problems: tuple[HookProblem, ...] = ()
    directory: bytes = field(default=b"/hooks", kw_only=True)
    site_file: bytes = field(default=b"/site.toml", kw_only=True)
    source_root: bytes = field(default=b"/src", kw_only=True)
    target_root: bytes = field(default=b"/dst", kw_only=True)
    timeout_s: float = field(default=600.0, kw_only=True)
    before_find: Callable[[], None] = lambda: None
    in_call: Callable[[HookCall], None] = lambda _: None
    calls: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    unended: bool = False

    def find(self) -> HooksFound:
        self.before_find()
        return HooksFound(hooks=tuple(map(hook, self.hooks)), problems=self.problems)

    async def call(self, call: HookCall) -> HookResult:
        told, name = dict(call.environment), f"{call.hook.stage.name}.d/{call.hook.name.decode()}"
        self.calls.append(f"{name} {told['MIGRATOR_STATE']}:{told['MIGRATOR_REASON']}")
        self.in_call(call)
        return HookResult(exit_code=self.hooks[name], output=b"not today")

    async def end(self, token: str) -> bool:
        self.tokens.append(token)
        return not self.unended

    def called(self) -> list[str]:
        """What was called since the last question."""
        calls, self.calls[:] = list(self.calls), []
        return calls


def hook(where: str) -> Hook:
    directory, _, name = where.partition(".d/")
    return Hook(stage=STAGES[directory], name=name.encode(), path=b"/" + where.encode())
