"""The throttle of a drain: what it was is written down before it is changed, and put back when the drain comes to rest."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from migrator.decide.drain_facts import options_to_restore
from migrator.domain.brick import VolumeState
from migrator.domain.cutover import StepResult
from migrator.domain.drain import OUT_STATES, ChangedOption, DrainNotes, DrainRecord, DrainState, DrainStep
from migrator.domain.events import EventKind, Severity
from migrator.ports.ledger import Ledger
from migrator.stages.bricks.drain_context import DrainCall
from migrator.stages.bricks.throttling import ThrottleRules, Throttling


@dataclass(slots=True, kw_only=True)
class Throttle:
    """Sets the option for one drain, and puts it back."""

    call: DrainCall
    _record: DrainRecord | None = None
    _throttling: Throttling = field(init=False)

    def __post_init__(self) -> None:
        world = self.call.world
        self._throttling = Throttling(
            volume=world.volume,
            rules=ThrottleRules(
                throttle=world.throttle,
                windows=world.windows,
                local_time=world.local_time,
                max_latency_s=world.max_latency_s,
            ),
            probes=world.ledger.probes,
            now_s=self.call.now_s,
            note=self._note,
            say=self._say,
            left=lambda state: left_by_additions(world.ledger, state.volume_id),
        )

    def notes(self, state: VolumeState) -> DrainNotes:
        """What is to be known before a drain starts."""
        return DrainNotes(options=self._throttling.before(state))

    async def follow(self, record: DrainRecord) -> None:
        """Set what holds now, where this process has not done so yet. Raises ToolFailed."""
        self._record = record
        await self._throttling.follow(record.notes.options or ())

    async def restore(self, record: DrainRecord) -> str:
        """Put back what this drain has changed and nobody else since; what was done, in words. Raises ToolFailed."""
        # What was written down since the record was read, too.
        noted = self.call.world.ledger.drains.read(record.id).notes.options or ()
        names = await self._throttling.restore(noted)
        return f"put back: {', '.join(names)}" if names else ""

    def _note(self, option: ChangedOption) -> None:
        if self._record is not None:
            self.call.world.ledger.drains.note(self._record.id, DrainNotes(options=(option,)))

    def _say(self, words: str) -> None:
        shown = "" if self._record is None else self._record.shown_bricks
        self.call.say(EventKind.THROTTLE_SET, Severity.INFO, f"drain of {shown}", words)


def left_changed(ledger: Ledger, state: VolumeState) -> tuple[DrainRecord, ...]:
    """Drains that came to rest, and were killed before the options were put back. What somebody has set since it was put
    back is his.
    """
    drains = ledger.drains
    return tuple(
        record
        for record in drains.all()
        if record.volume_id == state.volume_id
        and record.state in OUT_STATES | {DrainState.STOPPED}
        and options_to_restore(record, state)
        and not any(
            step.step is DrainStep.RESTORE and step.result is StepResult.DONE for step in drains.steps(record.id)
        )
    )


def left_by_additions(ledger: Ledger, volume_id: str, *, but: int | None = None) -> Sequence[ChangedOption]:
    """The options that additions to a volume have changed and not put back, apart from one of them."""
    return [
        option
        for record in ledger.additions.all()
        if record.volume_id == volume_id and record.id != but
        for option in record.notes.options or ()
    ]
