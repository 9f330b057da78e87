"""Whether a user is moved at all, or moved back, and from where that goes on."""

import asyncio
from dataclasses import dataclass

from migrator.decide.cutover import begin_rollback
from migrator.decide.cutover_words import cutover_facts, state_words
from migrator.domain.cutover import ENDED_STATES, SETTLED_STATES, CutoverRecord, CutoverState
from migrator.domain.cutover_run import Ending, TreeOutcome
from migrator.domain.cutover_seen import Act, Halt
from migrator.domain.events import EventKind, Severity
from migrator.domain.tree import UserTree
from migrator.domain.units import format_duration
from migrator.stages.cutover.comparing import TreeComparison
from migrator.stages.cutover.guarding import Guarding
from migrator.stages.cutover.machine import TreeMachine
from migrator.stages.cutover.owed import call_owed
from migrator.stages.cutover.retained import RetainedSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Begins, or goes on, with one tree after the other."""

    guarding: Guarding

    async def cut_over(self, machine: TreeMachine, tree: UserTree, batch: int) -> TreeOutcome:
        """Move a user, unless a guard speaks against it. One whose cutover is under way is past the guards."""
        cutting = machine.cutting
        cutovers = cutting.ledger.cutovers
        record = cutovers.latest(tree.path)
        own = record is not None and (record.plan, record.batch) == (cutting.plan.name, batch)
        # One who was let in by a call that was killed right then is not written down as retained yet.
        comparison = TreeComparison.of(cutting)
        if record is not None and own and (record.under_way or record.state is CutoverState.THAWED):
            cutting.say(EventKind.CUTOVER_STARTED, Severity.INFO, record, f"goes on: {state_words(record.state)}")
            return await comparison.after(machine, await machine.bring(record), record)
        if record is not None:
            await call_owed(machine, record)
        if record is not None and record.state in SETTLED_STATES:
            return _there_already(record, f"{tree.user} works on the target already ({state_words(record.state)})")
        found = await self.preview(tree, batch)
        for problem in found.problems:
            cutting.invocation.say(EventKind.GUARD_REFUSED, Severity.ERROR, f"{tree.user}: cutover", problem)
        if found.problems:
            return found
        await comparison.before(tree)
        record = cutovers.plan(
            plan=cutting.plan.name,
            batch=batch,
            tree=tree,
            predicted_freeze_s=found.predicted_freeze_s,
            at_s=cutting.now_s(),
        )
        predicted_s = record.predicted_freeze_s
        predicted = "nothing is predicted" if predicted_s is None else f"{format_duration(predicted_s)} are predicted"
        message = f"{tree.user} is moved to the target; of the freeze {predicted}"
        cutting.say(EventKind.CUTOVER_STARTED, Severity.INFO, record, message)
        comparison.keep(record)
        return await comparison.after(machine, await machine.bring(record), record)

    async def roll_back(self, machine: TreeMachine, tree: UserTree, batch: int) -> TreeOutcome:
        """Move a user back, from wherever he is."""
        cutting = machine.cutting
        record = cutting.ledger.cutovers.latest(tree.path)
        if record is None or record.state in ENDED_STATES:
            if record is not None:
                await call_owed(machine, record)
            return _on_source(tree, batch, record)
        unseen = await self._unseen_back(record)
        if problem := unseen or await RetainedSource(cutting=cutting).problem(record):
            cutting.say(EventKind.GUARD_REFUSED, Severity.ERROR, record, problem)
            return _not_back(record, problem, _ASK_AGAIN if unseen else _BRING_OVER)
        cutting.say(EventKind.CUTOVER_STARTED, Severity.INFO, record, f"{tree.user} is moved back to the source")
        return await machine.bring(record)

    async def preview(self, tree: UserTree, batch: int) -> TreeOutcome:
        """What the guards say of moving a user: refused where there are `problems`. Changes nothing."""
        record = self.guarding.sight.ledger.cutovers.latest(tree.path)
        if record is not None and record.state in SETTLED_STATES:
            return _there_already(record, f"{tree.user} works on the target already ({state_words(record.state)})")
        predicted_s = await asyncio.to_thread(self.guarding.predicted_freeze_s, tree, batch)
        problems = await self.guarding.problems(tree, batch, predicted_freeze_s=predicted_s)
        return TreeOutcome(
            tree=tree,
            batch=batch,
            ending=Ending.REFUSED if problems else Ending.PLANNED,
            cutover=None if record is None else cutover_facts(record),
            words="; ".join(problems) or f"{tree.user} would be moved",
            hint="mend each as it says, then run the same command again" if problems else "",
            problems=problems,
            predicted_freeze_s=predicted_s,
        )

    async def _unseen_back(self, record: CutoverRecord) -> str:
        """Why nobody would see who writes on the target, asked before a user who works there is frozen; else empty."""
        if record.state not in SETTLED_STATES:
            return ""
        unseen = await self.guarding.looker.unseen(record, back=True)
        return "who writes on the target cannot be asked" if unseen is None else "; ".join(unseen)

    async def preview_back(self, tree: UserTree, batch: int) -> TreeOutcome:
        """What would be done first to move a user back. Changes nothing."""
        record = self.guarding.sight.ledger.cutovers.latest(tree.path)
        if record is None or record.state in ENDED_STATES:
            return _on_source(tree, batch, record)
        if problem := await self._unseen_back(record):
            return _not_back(record, problem, _ASK_AGAIN)
        step = begin_rollback(record, await self.guarding.looker.see(record))
        if isinstance(step, Act):
            words = f"{tree.user} would be moved back: the first step is `{step.step.value}`"
            return TreeOutcome(
                tree=tree, batch=batch, ending=Ending.PLANNED, cutover=cutover_facts(record), words=words
            )
        return TreeOutcome(
            tree=tree,
            batch=batch,
            ending=Ending.REFUSED,
            cutover=cutover_facts(record),
            words=step.words,
            hint=step.hint if isinstance(step, Halt) else "",
            problems=(step.words,),
        )


def _there_already(record: CutoverRecord, words: str) -> TreeOutcome:
    return TreeOutcome(
        tree=record.tree, batch=record.batch, ending=Ending.MOVED, cutover=cutover_facts(record), words=words
    )


_BRING_OVER = (
    "look at these paths, and bring over to the target what is worth it; then give the same command with --overwrite-source, "
    "which moves what stands in the way to the trash of the source"
)
_ASK_AGAIN = 'put that right, then run the same command again; or have a pre-freeze hook answer for it, with [cutover] freeze = "hook"'


def _not_back(record: CutoverRecord, problem: str, hint: str) -> TreeOutcome:
    return TreeOutcome(
        tree=record.tree,
        batch=record.batch,
        ending=Ending.REFUSED,
        cutover=cutover_facts(record),
        words=f"{record.tree.user} stays on the target: {problem}",
        hint=hint,
        problems=(problem,),
    )


def _on_source(tree: UserTree, batch: int, record: CutoverRecord | None) -> TreeOutcome:
    """One who was never moved is somebody else than who was meant; one who is back already is where he should be."""
    if record is not None:
        return _there_already(record, f"{tree.user} works on the source already ({state_words(record.state)})")
    words = f"{tree.user} was never moved: there is nothing to go back from"
    return TreeOutcome(tree=tree, batch=batch, ending=Ending.REFUSED, words=words, problems=(words,))
