"""Known faults of GlusterFS versions, from `known_faults.toml`."""

import tomllib
from importlib import resources

import msgspec

Version = tuple[int, ...]


class KnownFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault of the versions from `since` (None: the first) to before `until` (None: no end). `lookup_optimize`: only
    volumes with the option on (True) or off (False) have it. `distributed`: only volumes of several subvolumes have
    it.
    """

    fault: str
    advice: str
    since: Version | None = None
    until: Version | None = None
    stops_drain: bool = False
    lookup_optimize: bool | None = None
    distributed: bool = False
    reference: str = ""


_FILE = resources.files(__package__).joinpath("known_faults.toml")

KNOWN_FAULTS = msgspec.convert(tomllib.loads(_FILE.read_text(encoding="utf-8"))["fault"], tuple[KnownFault, ...])
