"""The users' limits on the target, as guards and `plan` need them: what could not be asked is told, not raised."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from migrator.domain.errors import ToolFailed
from migrator.domain.quota import UserQuota
from migrator.ports.storage_targets import StorageTargets


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLook:
    """By number the users who have limits; `failure` why that is not known. `spread` is over how many storage targets new
    files lie at most.
    """

    quotas: Mapping[int, UserQuota] = field(default_factory=dict)
    spread: int = 1
    failure: str = ""


async def look_at_quotas(storage: StorageTargets | None, root: bytes, uids: Collection[int]) -> QuotaLook:
    """Ask once for these users; `root` is where their trees go. `storage` None: there is nothing to ask."""
    if storage is None or not uids:
        return QuotaLook()
    try:
        quotas = {uid: one for uid, one in (await storage.quotas(uids)).items() if one.limited}
        spread = (await storage.directory(root)).stripe.targets or 1 if quotas else 1
    except ToolFailed as error:
        return QuotaLook(failure=error.message)
    return QuotaLook(quotas=quotas, spread=spread)
