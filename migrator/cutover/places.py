"""The steps of a cutover at which hooks are called."""

from msgspec import Struct

from migrator.cutover.model import CutoverRecord
from migrator.hooks import model
from migrator.hooks.calls import HookedStep


class CutoverPlace(Struct, frozen=True, kw_only=True):
    """One step (freeze, switch, thaw or purge) of one cutover attempt; `back`: of its rollback."""

    step: model.HookStep
    record: CutoverRecord
    back: bool = False

    @property
    def hooked(self) -> HookedStep:
        """The step for its hooks. A repeated rollback has the steps of the one before."""
        user, number = self.record.tree.user, self.record.id
        return HookedStep(
            step=self.step,
            key=f"cutover {number}: {'rollback ' if self.back else ''}{self.step.value}",
            subject=f"{user}: {'rollback' if self.back else 'cutover'}",
            words=f"the {self.step.value} of {user}{' for the rollback' if self.back else ''}",
        )
