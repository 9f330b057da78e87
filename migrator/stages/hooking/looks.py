"""Which hooks there are, and which of them were called."""

from migrator.decide.hooks import problem_words
from migrator.domain.errors import Refused
from migrator.domain.hooks import HookOutcome, HooksFound, HookStage
from migrator.domain.paths import show
from migrator.ports.blocking import Blocking
from migrator.ports.hooks import HookRecords, Hooks, HookStepRecord

_LOOK_TIMEOUT_S = 30.0


async def find_hooks(hooks: Hooks, blocking: Blocking) -> HooksFound:
    """The hooks as they lie there now, with what speaks against them. Raises Refused where nobody can tell."""
    try:
        return await blocking(hooks.find, timeout_s=_LOOK_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise Refused(
            f"the hooks in {show(hooks.directory)} cannot be looked at: {why}",
            cause="the file system that holds [site] hooks_dir does not answer, or has an error",
            hint="mend it, or name another directory in site.toml; then run the same command again",
        ) from error


def refuse_hooks(found: HooksFound) -> None:
    """Raises Refused where anything speaks against calling hooks, with every reason."""
    if found.problems:
        raise Refused(
            "; ".join(problem_words(found)),
            cause="a hook does what it likes as the user that runs this program: nobody else may be able to change it",
            hint="mend each as it says (`migrator doctor` lists them too), then run the same command again",
        )


def called_hooks(records: HookRecords, stage: HookStage, step: HookStepRecord) -> frozenset[bytes]:
    """The hooks of one side of a step that have come to their end."""
    return frozenset(
        call.name
        for call in records.of_step(step.id)
        if call.stage == stage.name and call.outcome not in (None, HookOutcome.INTERRUPTED)
    )
