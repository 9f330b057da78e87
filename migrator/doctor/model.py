"""Settings of hosts, and how they differ from what is advised. Pure."""

from msgspec import Struct

from migrator.core.errors import ExitCode
from migrator.core.events import Finding, FindingStatus
from migrator.site.model import Setting


class TuningSetting(Struct, frozen=True, kw_only=True):
    """A setting of a host. `value` is None if it cannot be read, and empty if an option is not set."""

    host: str
    where: str
    role: str
    key: str
    value: str | None


class TuningFinding(Struct, frozen=True, kw_only=True):
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


class TuningReport(Struct, frozen=True, kw_only=True):
    """The result: the dangerous findings first. `compared` counts settings with a value, `unknown` names the others;
    `problems` are hosts that did not answer.
    """

    findings: tuple[TuningFinding, ...]
    compared: int
    unknown: tuple[str, ...]
    problems: tuple[str, ...]


class ConfigurationCheck(Struct, frozen=True, kw_only=True):
    """The findings about the files that configure a site, and the settings in force."""

    file: str
    findings: tuple[Finding, ...]
    settings: tuple[Setting, ...]

    @property
    def exit_code(self) -> ExitCode:
        failed = any(one.status is FindingStatus.FAILURE for one in self.findings)
        return ExitCode.USAGE if failed else ExitCode.DONE
