"""The steps of a cutover that hooks are called around."""

from dataclasses import dataclass

from migrator.domain.cutover import CutoverRecord
from migrator.domain.hooks import HookStep
from migrator.stages.hooking.world import HookedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverPlace:
    """One step (freeze, switch, thaw or purge) of one attempt to cut a tree over; `back`: of its rollback."""

    step: HookStep
    record: CutoverRecord
    back: bool = False

    @property
    def hooked(self) -> HookedStep:
        """As hooks are called around it. A rollback that begins again has the steps of the one before."""
        user, number = self.record.tree.user, self.record.id
        return HookedStep(
            step=self.step,
            key=f"cutover {number}: {'rollback ' if self.back else ''}{self.step.value}",
            subject=f"{user}: {'rollback' if self.back else 'cutover'}",
            words=f"the {self.step.value} of {user}{' for the rollback' if self.back else ''}",
        )
