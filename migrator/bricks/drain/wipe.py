"""The last steps of a drain, which the site's hooks perform: wiping bricks that are out of the volume, and handing them over."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from migrator.bricks.drain import model
from migrator.bricks.drain.call import DrainCall, DrainPorts, bricks_of, hooked
from migrator.core.errors import Refused, ToolFailed
from migrator.gluster.model import DiskFacts, PlaceSeen
from migrator.gluster.rules import disk_problems
from migrator.hooks.model import HookFacts, HookState, HookStep
from migrator.ledger.model import SiteRecord


def wipe_word(site_id: str, volume_id: str, disks: Mapping[str, DiskFacts]) -> str:
    """Return the word that allows wiping these bricks on these disks, and no others."""
    text = "\0".join((site_id, volume_id, *(f"{name}\0{disks[name].identity}" for name in sorted(disks))))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


async def wipe_permission(
    ports: DrainPorts, site: SiteRecord, record: model.DrainRecord
) -> tuple[str | None, tuple[str, ...]]:
    """Return the word that allows hooks to wipe these bricks, or the problems that forbid it. A wipe that has begun
    keeps its word.
    """
    if record.notes.wipe_word is not None:
        return record.notes.wipe_word, ()
    disks = await ports.disks(record.bricks)
    problems = disk_problems(disks)
    return None if problems else wipe_word(site.site_id, record.volume_id, disks), problems


@dataclass(slots=True, kw_only=True)
class DiskHooks:
    """Calls the hooks of one call that wipe bricks and hand them over. `_mounted` has the mount point of each brick's file
    system when this call first checked its disk.
    """

    call: DrainCall
    _mounted: dict[str, str] = field(default_factory=dict)

    async def perform(self, act: model.DrainAct, record: model.DrainRecord, step: HookStep) -> None:
        """Run a step that its `pre` hooks perform, one brick after the other, and check a wipe. The disk is checked right
        before each hook that may wipe it. Hooks that give it away write to it, so it is checked until the first of them
        has worked. Raises HookSkipped, Refused, ToolFailed.
        """
        hooks = self.call.hooks

        async def work(name: str) -> None:
            if step is HookStep.WIPE:
                await self._check_wiped(record, name)

        def before(name: str) -> HookFacts:
            return self.call.hook_facts(record.hook_facts(), brick=name)

        def after(facts: HookFacts, _: None) -> HookFacts:
            return self.call.hook_facts(record.hook_facts(), brick=facts.brick, state=HookState.DONE)

        for name in record.bricks:
            place = hooked(record, step, name)
            if act.seen_done:
                await hooks.catch_up(place, after(before(name), None))
                continue
            check = partial(self._check_disk, record, name, step)
            if step is HookStep.HAND_OVER:
                check = partial(hooks.until_worked, place, check)
            await hooks.around(place, partial(work, name), facts=before(name), after=after, check=check)

    async def _check_disk(self, record: model.DrainRecord, name: str, step: HookStep) -> None:
        """Check the disk of a brick again before a hook wipes it or gives it away. Raises Refused.

        If a hook has unmounted the file system already, there is nothing to check: the path is on the one above then.
        """
        disks = await self.call.ports.disks(record.bricks)
        disk, mounted = disks[name], self._mounted.setdefault(name, disks[name].mount)
        unmounted = not disk.mount or mounted.startswith(disk.mount.rstrip("/") + "/")
        if unmounted and not disk.unread:
            return
        problems = disk_problems({name: disk})
        if not problems and all(one.mount for one in disks.values()):
            word = wipe_word(self.call.site.site_id, record.volume_id, disks)
            problems = () if word == self.call.request.confirm else ("another disk is mounted there now",)
        if problems:
            raise Refused(
                f"{name} may not be {'wiped' if step is HookStep.WIPE else 'given away'}: {'; '.join(problems)}",
                hint="move it elsewhere, or do that by hand; the drain itself is complete",
            )

    async def _check_wiped(self, record: model.DrainRecord, name: str) -> None:
        bricks = tuple(brick for brick in bricks_of(record, ()) if brick.name == name)
        place = (await self.call.ports.places(bricks, record.volume_id))[name]
        if place is not PlaceSeen.EMPTY:
            raise ToolFailed(
                f"no empty file system is mounted at {name} after the pre-wipe hooks (found: {place.value})",
                cause="no hook wipes it, or the hook failed without an exit code, or it did not mount it again",
                hint="make the file system and mount it as /etc/fstab says, then run the same command again",
            )
