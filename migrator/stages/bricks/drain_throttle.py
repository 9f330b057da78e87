"""The option by which Gluster is told how hard to move files: what it was is written down before it is changed."""

from dataclasses import dataclass

from migrator.decide.drain_facts import options_to_restore
from migrator.domain.brick import VolumeState
from migrator.domain.drain import ChangedOption, DrainNotes, DrainRecord
from migrator.domain.errors import ToolFailed
from migrator.stages.bricks.drain_context import THROTTLE_OPTION, DrainCall


@dataclass(slots=True, kw_only=True)
class Throttle:
    """Sets the option for one drain, and puts it back. `_set` is what this process has set last."""

    call: DrainCall
    _set: str | None = None

    def notes(self, state: VolumeState) -> DrainNotes:
        """What is to be known before a drain starts. Whatever the option may become is noted now."""
        given = self.call.throttles()
        if not given:
            return DrainNotes(options=())
        before = dict(state.options).get(THROTTLE_OPTION)
        return DrainNotes(options=(ChangedOption(name=THROTTLE_OPTION, before=before, given=given),))

    async def follow(self, record: DrainRecord) -> None:
        """Set what holds now, where this process has not done so yet. Raises ToolFailed."""
        wanted = self.call.throttle_now()
        noted = {option.name: option for option in record.notes.options or ()}.get(THROTTLE_OPTION)
        if wanted is None or wanted == self._set:
            return
        if noted is None or wanted not in noted.given:
            # Only what is written down can be put back after a crash.
            before = await self._value()
            option = ChangedOption(name=THROTTLE_OPTION, before=before, given=(wanted,))
            self.call.world.ledger.drains.note(record.id, DrainNotes(options=(option,)))
        await self.call.world.volume.set_option(THROTTLE_OPTION, wanted)
        self._set = wanted

    async def restore(self, record: DrainRecord) -> str:
        """Put back what this drain has changed and nobody else since; what was done, in words. Raises ToolFailed."""
        state = (await self.call.world.volume.state_and_tasks())[0]
        names = options_to_restore(record, state)
        for option in record.notes.options or ():
            if option.name in names:
                await self.call.world.volume.set_option(option.name, option.before)
        self._set = None
        return f"put back: {', '.join(names)}" if names else ""

    async def _value(self) -> str | None:
        state = (await self.call.world.volume.state_and_tasks())[0]
        if not state.volume_id:
            raise ToolFailed("the options of the volume are not known")
        return dict(state.options).get(THROTTLE_OPTION)
