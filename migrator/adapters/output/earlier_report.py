"""An earlier report, read back from its JSON form."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migrator.domain.errors import UsageError
from migrator.domain.forecast import ConePoint
from migrator.domain.report_parts import EarlierReport

REPORT_JSON = "report.json"


def read_earlier(place: Path) -> EarlierReport:
    """A report from its `report.json`, or from the directory that holds it. Raises UsageError for what is none. Keys that an older
    version did not have are taken as not known.
    """
    file = place / REPORT_JSON if place.is_dir() else place
    try:
        document = json.loads(file.read_bytes())
        status = document["status"]
        overall = status["overall"]
        forecast = document.get("forecast") or {}
        plan = status.get("plan") or {}
        return EarlierReport(
            at_s=float(status["at_s"]),
            plan=plan.get("name"),
            total_bytes=int(overall["total_bytes"]),
            done_bytes=int(overall["done_bytes"]),
            total_files=int(overall["total_files"]),
            done_files=int(overall["done_files"]),
            likely_at_s=_number(forecast, "likely_at_s"),
            earliest_at_s=_number(forecast, "earliest_at_s"),
            latest_at_s=_number(forecast, "latest_at_s"),
            cone=tuple(ConePoint(**{key: float(value) for key, value in one.items()}) for one in _cone(forecast)),
        )
    except OSError as error:
        raise UsageError(
            f"the earlier report {file} cannot be read: {error.strerror}",
            hint="name a report.json that `migrator report --output DIRECTORY` has written, or its directory",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{file} is no report of migrator",
            cause="it is another file, or was cut off or edited",
            hint="name a report.json that `migrator report --output DIRECTORY` has written, or its directory",
        ) from error


def _number(record: Mapping[str, Any], key: str) -> float | None:
    value = record.get(key)
    return None if value is None else float(value)


def _cone(forecast: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(forecast.get("cone") or [])
