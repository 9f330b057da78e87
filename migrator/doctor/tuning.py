"""`doctor --tuning`: compares settings of all hosts with `tuning.toml`. Changes nothing."""

import asyncio
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from itertools import groupby

import msgspec

from migrator.core.errors import MigratorError
from migrator.doctor.model import TuningFinding, TuningReport, TuningSetting
from migrator.gluster.model import VolumeState
from migrator.gluster.volume import GlusterSource
from migrator.hosts.far_source import ask_script, far_argv, far_source
from migrator.hosts.ports import Host
from migrator.hosts.site import SiteHosts, names
from migrator.site.config import Site

THIS_HOST = "localhost"
_AT_ONCE = 32
_GLUSTER = "gluster."
_SIZE = re.compile(r"([0-9]+)([KMGTkmgt]?)[Bb]?")
_UNITS = ("", "K", "M", "G", "T")


class Advice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Advice on a setting; the head of `tuning.toml` explains each field."""

    key: str
    advised: str
    by: str
    when: str
    why: str
    risk: str
    equals: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    below: int | None = None
    above: int | None = None
    on: tuple[str, ...] = ()
    default: str | None = None
    dangerous: bool = False

    def concerns(self, fact: TuningSetting) -> bool:
        """True if the value of a fact is a finding."""
        if fact.value is None or fact.key != self.key or (self.on and fact.role not in self.on):
            return False
        size = _SIZE.fullmatch(fact.value)
        number = None if size is None else int(size[1]) << 10 * _UNITS.index(size[2].upper())
        return (
            fact.value in self.equals
            or (bool(self.unless) and fact.value not in self.unless)
            or (number is not None and self.below is not None and number < self.below)
            or (number is not None and self.above is not None and number > self.above)
        )


_FILE = resources.files(__package__).joinpath("tuning.toml")
ADVICE = msgspec.convert(tomllib.loads(_FILE.read_text(encoding="utf-8"))["advice"], tuple[Advice, ...])


def evaluate(
    facts: Iterable[TuningSetting], problems: Iterable[str] = (), *, advice: Sequence[Advice] = ADVICE
) -> TuningReport:
    """Compare facts with the advice, in its order. Pure."""
    keys = {one.key for one in advice}
    known = [fact for fact in facts if fact.value is None or fact.key in keys]
    findings = [
        TuningFinding(
            key=one.key,
            value=value,
            places=tuple(dict.fromkeys(f"{fact.host}: {fact.where}" for fact in group)),
            **{name: getattr(one, name) for name in ("advised", "by", "when", "why", "risk", "dangerous")},
        )
        for one in advice
        for value, group in groupby(sorted(filter(one.concerns, known), key=_value), key=_value)
    ]
    return TuningReport(
        findings=tuple(sorted(findings, key=lambda found: not found.dangerous)),
        compared=sum(fact.value is not None for fact in known),
        unknown=tuple(f"{fact.host}: {fact.where}: {fact.key}" for fact in known if fact.value is None),
        problems=tuple(problems),
    )


def _value(fact: TuningSetting) -> str:
    return fact.value or ""


def volume_settings(state: VolumeState, *, advice: Sequence[Advice] = ADVICE) -> list[TuningSetting]:
    """The options of a volume for which there is advice; options that are not set have their default, if that is known."""
    given = dict(state.options)
    defaults = {one.key: one.default for one in advice if one.key.startswith(_GLUSTER)}
    where = f"volume {state.volume}"
    return [
        TuningSetting(host="GlusterFS", where=where, role="volume", key=key, value=value)
        for key, default in defaults.items()
        if (value := given.get(key.removeprefix(_GLUSTER), default)) is not None
    ]


async def examine_tuning(site: Site, hosts: SiteHosts, source: GlusterSource | None) -> TuningReport:
    """The settings of this machine, of every host of site.toml, and of the source volume. Hosts that cannot be asked are
    problems. Closes no connection.
    """
    facts: list[TuningSetting] = []
    problems: list[str] = []
    state: VolumeState | None = None
    if source is not None:
        try:
            state = await source.commands.state()
            facts += volume_settings(state)
        except MigratorError as error:
            problems.append(f"the options of the source volume are unknown: {error.message}")
    gate = asyncio.Semaphore(_AT_ONCE)

    async def ask(name: str) -> list[TuningSetting] | str:
        async with gate:
            try:
                return await _read_settings(name, await hosts.reach(name), _question(site, name, state))
            except MigratorError as error:
                return f"{name} is not checked: {error.message}"

    for found in await asyncio.gather(*map(ask, hosts.names)):
        if isinstance(found, str):
            problems.append(found)
        else:
            facts += found
    return evaluate(facts, problems)


def _question(site: Site, name: str, state: VolumeState | None) -> Mapping[str, list[tuple[str, str]]]:
    """The paths on a host, by role."""
    bricks = [brick.path for brick in state.bricks if brick.host == name] if state is not None else []
    disks = [("brick", path) for path in bricks]
    if name == THIS_HOST:
        mounts = [("source", os.fsencode(site.source.mount)), ("target", os.fsencode(site.target.mount))]
        disks.append(("state", os.fsencode(site.site.state_dir)))
    else:
        sections = [section for section in site.source.hosts if name in names(section.name)]
        mounts = [("target", os.fsencode(one.target)) for one in sections if one.target is not None]
    return {
        key: [(role, path.decode("latin-1")) for role, path in some]
        for key, some in (("mounts", mounts), ("disks", disks))
    }


async def _read_settings(name: str, host: Host, question: Mapping[str, list[tuple[str, str]]]) -> list[TuningSetting]:
    """The facts of a host. Raises HostLost, ToolFailed."""
    python = (await host.facts()).python
    argv = far_argv(python, far_source("migrator.doctor", ("far_tuning",)))
    rows = await ask_script(
        host.processes,
        argv,
        list[tuple[str, str, str, str | None]],
        question=question,
        otherwise="its settings cannot be read: ",
    )
    return [TuningSetting(host=name, where=where, role=role, key=key, value=value) for where, role, key, value in rows]
