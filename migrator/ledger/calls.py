"""The site, runs of verbs, the journal and events."""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace
from sqlalchemy import or_, select

from migrator.core.errors import UsageError
from migrator.core.events import Event, EventKind, Severity
from migrator.fs.model import MountIdentity, RewrittenLinks, TargetCapabilities
from migrator.ledger import tables
from migrator.ledger.model import RunRecord, SiteRecord
from migrator.ledger.rows import Records, add, columns_of

# The site, runs and events.


_ONLY_SITE = 1


class SiteRecords(Records):
    """The one row about the site."""

    rewritten_links: RewrittenLinks | None = None
    """As site.toml has them now: they are part of the capabilities, whatever they were at the probe."""

    def read(self) -> SiteRecord | None:
        """The site; None before `init`."""
        found = self._first(SiteRecord, select(tables.SiteRow))
        if found is None or found.capabilities is None:
            return found
        return replace(found, capabilities=replace(found.capabilities, rewritten_links=self.rewritten_links))

    def required(self) -> SiteRecord:
        """The site. Raises UsageError before `init`."""
        if (site := self.read()) is None:
            raise UsageError("this site has no ledger entry yet", hint="run `migrator init`")
        return site

    def create(self, record: SiteRecord) -> None:
        """Record the site. Raises UsageError if the ledger belongs to another site."""
        with self._database.write() as connection:
            there = connection.execute(select(tables.SiteRow)).one_or_none()
            if there is None:
                add(connection, tables.SiteRow, **columns_of(tables.SiteRow, record, id=_ONLY_SITE))
            elif there.site_id != record.site_id:
                raise UsageError(
                    f"the ledger belongs to the site {there.name} already",
                    hint="give the new site a state_dir of its own in site.toml",
                )

    def update_identities(self, source: MountIdentity, target: MountIdentity) -> None:
        """Record the current mounts as the expected ones."""
        self._change(tables.SiteRow, _ONLY_SITE, "site", source=source, target=target)

    def record_capabilities(self, capabilities: TargetCapabilities, at_s: float) -> None:
        """Record which attributes of a file the target keeps."""
        found = {"capabilities": capabilities, "capabilities_probed_at_s": at_s}
        self._change(tables.SiteRow, _ONLY_SITE, "site", **found)


class RunRecords(Records):
    """Invocations of verbs that write."""

    def start(self, *, verb: str, pid: int, at_s: float, directory: str) -> int:
        """Record a new run; returns its id. Every call is a run of its own."""
        times = {"started_at_s": at_s, "heartbeat_at_s": at_s}
        return self._add(tables.RunRow, verb=verb, pid=pid, directory=directory, **times)

    def heartbeat(self, run_id: int, at_s: float) -> None:
        """The run is alive."""
        self._change(tables.RunRow, run_id, f"run {run_id}", heartbeat_at_s=at_s)

    def finish(self, run_id: int, at_s: float, exit_code: int) -> None:
        """The run has ended."""
        ended = {"finished_at_s": at_s, "heartbeat_at_s": at_s, "exit_code": exit_code}
        self._change(tables.RunRow, run_id, f"run {run_id}", **ended)

    def latest(self) -> RunRecord | None:
        """The newest run."""
        return self._first(RunRecord, select(tables.RunRow).order_by(tables.RunRow.id.desc()))

    def newest(self, limit: int, directories: Collection[str]) -> Sequence[RunRecord]:
        """The newest runs, and those with these directories, newest first."""
        run = tables.RunRow
        newest = select(run.id).order_by(run.id.desc()).limit(limit)
        query = select(tables.RunRow).where(or_(run.id.in_(newest), run.directory.in_(directories)))
        return self._all(RunRecord, query.order_by(run.id.desc()))


class JournalRecords(Records):
    """What the site's commands have begun, each entry with a random token that is in the journal on the target too."""

    def add(self, *, token: str, at_s: float, what: str) -> int:
        """Record an entry; returns its number, which is higher than those of all before."""
        return self._add(tables.JournalRow, token=token, at_s=at_s, what=what)

    def tokens(self, first: int) -> Mapping[int, str]:
        """The tokens of the entries from a number on."""
        query = select(tables.JournalRow.id, tables.JournalRow.token).where(tables.JournalRow.id >= first)
        return {row.id: row.token for row in self._rows(query)}


class EventRecords(Records):
    """Events of the migration."""

    def add(self, event: Event, run_id: int | None = None) -> None:
        self._add(tables.EventRow, **columns_of(tables.EventRow, event, run_id=run_id))

    def note(self, at_s: float, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """Add an event that is not shown, and that belongs to no run."""
        self.add(Event(at_s=at_s, kind=kind, severity=severity, subject=subject, message=message))

    def latest(self, limit: int) -> Sequence[Event]:
        """The newest events, newest first."""
        return self._all(Event, select(tables.EventRow).order_by(tables.EventRow.id.desc()).limit(limit))
