"""The throttle of an addition's fix-layout and rebalance, as that of a drain."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from migrator.domain.addition import AdditionNotes, AdditionRecord, AdditionState
from migrator.domain.brick import VolumeState
from migrator.domain.drain import ChangedOption
from migrator.domain.errors import ToolFailed
from migrator.domain.events import EventKind, Severity
from migrator.stages.bricks.add_context import AdditionCall, subject_of
from migrator.stages.bricks.drain_throttle import left_by_additions, left_changed
from migrator.stages.bricks.throttling import Throttling


@dataclass(slots=True, kw_only=True)
class AdditionThrottle:
    """Sets the option for one addition, and puts it back. Without rules it is left alone."""

    call: AdditionCall
    _record: AdditionRecord | None = None
    _throttling: Throttling | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        world = self.call.world
        if world.throttle is not None:
            self._throttling = Throttling(
                volume=world.volume,
                rules=world.throttle,
                probes=world.ledger.probes,
                now_s=self.call.now_s,
                note=self._note,
                say=self._say,
                left=self._left,
            )

    async def follow(self, record: AdditionRecord) -> None:
        """Set what holds now, where this process has not done so yet. Raises ToolFailed."""
        if self._throttling is None:
            return
        self._record = record
        await self._throttling.follow(self.call.world.ledger.additions.read(record.id).notes.options or ())

    async def restore(self, record: AdditionRecord) -> str:
        """Put back what this addition has changed and nobody else since; what was done, in words. May be called again. Raises
        ToolFailed.
        """
        additions = self.call.world.ledger.additions
        noted = additions.read(record.id).notes.options or ()
        if self._throttling is None or not noted:
            return ""
        names = await self._throttling.restore(noted)
        additions.note(record.id, AdditionNotes(options=()))
        return f"put back: {', '.join(names)}" if names else ""

    async def restore_left(self) -> None:
        """Put back what additions have left that ended otherwise. Raises ToolFailed."""
        additions = self.call.world.ledger.additions
        for record in additions.all():
            if record.state in (AdditionState.SETTLED, AdditionState.FAILED) and record.notes.options:
                if record.volume_id != (await self._state()).volume_id:
                    continue
                words = await self.restore(record)
                if words:
                    self.call.say(EventKind.ADDITION_STEP, Severity.INFO, subject_of(record), words)

    async def _state(self) -> VolumeState:
        state, _ = await self.call.world.volume.state_and_tasks()
        if not state.volume_id:
            raise ToolFailed("the options of the volume are not known")
        return state

    def _note(self, option: ChangedOption) -> None:
        if self._record is not None:
            self.call.world.ledger.additions.note(self._record.id, AdditionNotes(options=(option,)))

    def _say(self, words: str) -> None:
        if self._record is not None:
            self.call.say(EventKind.THROTTLE_SET, Severity.INFO, subject_of(self._record), words)

    def _left(self, state: VolumeState) -> Sequence[ChangedOption]:
        ledger = self.call.world.ledger
        own = None if self._record is None else self._record.id
        drains = [option for record in left_changed(ledger, state) for option in record.notes.options or ()]
        return [*drains, *left_by_additions(ledger, state.volume_id, but=own)]
