"""Reports of the past: each is kept in a dated directory, whatever command made it, for later ones to compare with."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from migrator.core import documents
from migrator.core.durable import write_durably
from migrator.core.errors import UsageError
from migrator.render.text import to_json
from migrator.report import model, rules_promise

REPORT_JSON = "report.json"
REPORT_FILES = ("report.html", "report.md", "report.csv", REPORT_JSON, "report.pdf")
_SENT, _BASELINE = "sent", "baseline"
_NAME = "%Y%m%dT%H%M%S"


class KeptReports(Struct, frozen=True, kw_only=True):
    """The directory of kept reports, one directory each. Marks are empty files in it."""

    directory: Path

    def comparisons(self, *, now_s: float) -> model.EarlierReports:
        """What a report of now compares with. A report that cannot be read (cut off, edited) is passed over."""
        kept = self._all()
        return model.EarlierReports(
            earlier=self._first(rules_promise.earlier_reports(kept, now_s=now_s)),
            baseline=self._first(rules_promise.baselines(kept)),
        )

    def place(self, facts: model.ReportFacts) -> Path:
        """The directory of a report."""
        at = datetime.fromtimestamp(facts.status.at_s, UTC)
        # To the millisecond, so that names are unique and sort by time.
        return self.directory / f"{at:{_NAME}}.{at.microsecond // 1000:03d}Z"

    def keep(self, facts: model.ReportFacts, *, asked: bool) -> Path | None:
        """Write the JSON form, and return its directory; None if it is not kept: a report that was only shown (not
        `asked`) is kept once a day. May be called twice. Raises OSError.
        """
        if not asked and not rules_promise.is_due(self._all(), now_s=facts.status.at_s):
            return None
        place = self.place(facts)
        place.mkdir(parents=True, exist_ok=True)
        write_durably(place / REPORT_JSON, to_json(facts).encode())
        return place

    def mark_sent(self, place: Path) -> None:
        """The hooks took the report."""
        with suppress(FileNotFoundError):  # a hook may move the report away
            (place / _SENT).touch()

    def mark_baseline(self, place: Path) -> None:
        """Later reports compare with the dates of this one."""
        (place / _BASELINE).touch()

    def _all(self) -> list[model.KeptReport]:
        found = []
        for file in self.directory.glob(f"*Z/{REPORT_JSON}"):
            place = file.parent
            with suppress(ValueError):  # somebody else's directory
                at = datetime.strptime(f"{place.name[:-1]}000", f"{_NAME}.%f").replace(tzinfo=UTC)
                marks = {"sent": (place / _SENT).exists(), "baseline": (place / _BASELINE).exists()}
                found.append(model.KeptReport(name=place.name, at_s=at.timestamp(), **marks))
        return sorted(found, key=lambda one: one.name)

    def _first(self, kept: list[model.KeptReport]) -> model.EarlierReport | None:
        for one in kept:
            with suppress(UsageError):
                return read_earlier(self.directory / one.name)
        return None


def read_earlier(place: Path) -> model.EarlierReport:
    """Read a report from `report.json` or its directory. Keys that an older version did not write are unknown values.
    Raises UsageError if it is no report.
    """
    file = place / REPORT_JSON if place.is_dir() else place
    hint = "name a report.json that `migrator report --output DIRECTORY` has written, or its directory"
    try:
        document = json.loads(file.read_bytes())
        status, forecast = document["status"], document["status"].get("forecast") or {}
        dates = {f"{one['goal']}_at_s": one.get("at_s") for one in document.get("milestones") or ()}
        known = {
            **dates,
            **status["overall"],
            **forecast,
            "at_s": status["at_s"],
            "plan": (status.get("plan") or {}).get("name"),
        }
        facts = {name: known.get(name) for name in model.EarlierReport.__struct_fields__}
        earlier: model.EarlierReport = documents.decode(model.EarlierReport, facts)
    except OSError as error:
        raise UsageError(f"the earlier report {file} cannot be read: {error.strerror}", hint=hint) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        cause = "it is another file, or was cut off or edited"
        raise UsageError(f"{file} is not a report of migrator", cause=cause, hint=hint) from error
    return earlier
