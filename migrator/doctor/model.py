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
    """The setting."""
    value: str
    """Its value; empty: the option is not set."""
    places: tuple[str, ...]
    """Hosts, with mounts, interfaces or files."""
    advised: str
    """The advised value."""
    by: str
    """Origin of the advice."""
    when: str
    """When the advice applies."""
    why: str
    """Its reason."""
    risk: str
    """The risk of following it."""
    dangerous: bool
    """The value may lose data or break connections."""


class TuningReport(Struct, frozen=True, kw_only=True):
    """Settings of hosts and file systems against advice: `doctor --tuning`."""

    findings: tuple[TuningFinding, ...]
    """Settings that differ, dangerous ones first."""
    compared: int
    """Number of settings that were compared."""
    unknown: tuple[str, ...]
    """Settings that could not be read."""
    problems: tuple[str, ...]
    """Hosts that did not answer."""


class ConfigurationCheck(Struct, frozen=True, kw_only=True):
    """The files that configure a site: `config check`."""

    file: str
    """Path of site.toml."""
    findings: tuple[Finding, ...]
    """Findings about the files."""
    settings: tuple[Setting, ...]
    """The settings in force."""

    @property
    def exit_code(self) -> ExitCode:
        """2 (usage) if a finding is a failure."""
        failed = any(one.status is FindingStatus.FAILURE for one in self.findings)
        return ExitCode.USAGE if failed else ExitCode.DONE
