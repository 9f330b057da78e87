"""Settings of hosts, and how they differ from what is advised. Pure."""

from migrator.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A setting of a host. `value` is None if it cannot be read, and empty if an option is not set."""

    host: str
    where: str
    role: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningFinding:
    """A setting that differs from the advice, at all places with this value."""

    key: str
    value: str
    places: tuple[str, ...]
    advised: str
    by: str
    when: str
    why: str
    risk: str
    dangerous: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningReport:
    """The result: the dangerous findings first. `compared` counts settings with a value, `unknown` names the others;
    `problems` are hosts that did not answer.
    """

    findings: tuple[TuningFinding, ...]
    compared: int
    unknown: tuple[str, ...]
    problems: tuple[str, ...]
