"""Plan documents: canonical JSON with a checksum, `PLANS/NAME.json`."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from migrator.core.documents import Unreadable, decode, encode, plain
from migrator.core.durable import replacing
from migrator.core.errors import Refused, UsageError
from migrator.plan.model import Plan, check_plan_name

# --- Document text: sorted keys, one value per line, bytes percent-escaped. Equal plans give equal text, and a diff
# between two plans shows their differences.


FORMAT = 1
_CHECKSUM = "checksum"
_FORMAT = "format"
_PLAN_AGAIN = "make a new plan with `migrator plan --activate`"


def write_document(plan: Plan) -> tuple[str, str]:
    """Return the text of a plan's document, and its checksum."""
    content: dict[str, Any] = {_FORMAT: FORMAT, **plain(plan)}
    checksum = _checksum(content)
    return _canonical({**content, _CHECKSUM: checksum}), checksum


def read_document(text: str, *, name: str, site_id: str | None = None) -> tuple[Plan, str]:
    """Return the plan in a document, and its checksum. `name` is from the file's name; `site_id` None: of any site.

    Raises UsageError if the text is not a plan of this format; Refused if it was changed after it was written, or is a
    plan of another site or name.
    """
    content = _parse(text, name)
    checksum = content.pop(_CHECKSUM, None)
    version = content.get(_FORMAT)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise UsageError(f"plan {name!r} has no format number", cause="it is no plan document", hint=_PLAN_AGAIN)
    if version > FORMAT:
        raise UsageError(
            f"plan {name!r} has format {version}; this version of migrator reads up to {FORMAT}",
            cause="it was made by a newer version",
            hint="use that version, or " + _PLAN_AGAIN,
        )
    if checksum != _checksum(content):
        raise Refused(
            f"plan {name!r} is not what was written: its checksum is off",
            cause="the document was edited by hand, or damaged",
            hint=f"{_PLAN_AGAIN}, with the limits and the order that you want; a plan is never edited",
        )
    del content[_FORMAT]
    try:
        plan: Plan = decode(Plan, content, "plan")
    except Unreadable as error:
        raise UsageError(
            f"plan {name!r} cannot be read: {error}", cause="it was made by another version", hint=_PLAN_AGAIN
        ) from error
    if site_id is not None and plan.site_id != site_id:
        raise Refused(
            f"plan {name!r} is for another site ({plan.site!r})",
            cause="the plan was copied from another site, or `init` was run anew",
            hint=_PLAN_AGAIN,
        )
    if plan.name != name:
        raise Refused(
            f"plan {name!r} contains plan {plan.name!r}",
            cause="the document was renamed or copied; its chunk lists were not",
            hint=f"give it its name back, or {_PLAN_AGAIN}",
        )
    return plan, str(checksum)


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"plan {name!r} is no JSON document: {error}", cause="the file was cut off or replaced", hint=_PLAN_AGAIN
        ) from error
    if not isinstance(content, dict):
        raise UsageError(f"plan {name!r} is no plan document: it holds no object at the top", hint=_PLAN_AGAIN)
    return content


def _canonical(content: Mapping[str, Any]) -> str:
    return encode(content, sort_keys=True, indent=1) + "\n"


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.blake2b(_canonical(content).encode("ascii"), digest_size=32).hexdigest()


# --- Files


_SUFFIX = ".json"
_DEFAULT_NAME = re.compile(r"plan-(\d{4,})")


class PlanFiles(Struct, frozen=True):
    """`NAME.json` in a directory: canonical JSON with a checksum over its content. `site_id` None: plans of any site can be read."""

    directory: Path
    site_id: str | None

    def next_name(self, *, taken: Collection[str] = ()) -> str:
        """Return `plan-0001`, or the next number above all in use by documents, leftovers of planning, or `taken`."""
        names = {entry.name for entry in (self.directory.iterdir() if self.directory.is_dir() else ())} | set(taken)
        numbers = [
            int(match.group(1))
            for name in names
            if (match := _DEFAULT_NAME.fullmatch(name.removesuffix(_SUFFIX).removesuffix(".chunks")))
        ]
        return f"plan-{max(numbers, default=0) + 1:04d}"

    def require_free(self, name: str) -> None:
        """Raise UsageError if the name is invalid or taken."""
        file = self._file(name)
        if file.exists():
            raise _taken(name, file)

    def write(self, plan: Plan) -> tuple[str, str]:
        """Write atomically and durably; return path and checksum. Raises UsageError if the name is taken."""
        file = self._file(plan.name)
        text, checksum = write_document(plan)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with replacing(file, exclusive=True) as stream:
                stream.write(text.encode("ascii"))
        except FileExistsError:
            raise _taken(plan.name, file) from None
        return str(file), checksum

    def read(self, name: str) -> tuple[Plan, str]:
        """Return the plan and its checksum. Raises UsageError if it is missing or not a plan, Refused if it was edited
        or belongs to another site.
        """
        file = self._file(name)
        try:
            text = file.read_bytes().decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            raise UsageError(
                f"there is no plan {name!r}",
                cause=f"{file} is missing",
                hint=f"{self._known()}; `migrator plan` makes one",
            ) from None
        return read_document(text, name=name, site_id=self.site_id)

    def _known(self) -> str:
        names = sorted(file.stem for file in self.directory.glob(f"*{_SUFFIX}"))
        return f"there are {', '.join(names)}" if names else "there is none yet"

    def _file(self, name: str) -> Path:
        return self.directory / (check_plan_name(name) + _SUFFIX)


def _taken(name: str, file: Path) -> UsageError:
    return UsageError(
        f"there is a plan {name!r} already",
        cause=f"{file} exists; a plan is never overwritten",
        hint="choose another name, or leave it out for the next free one",
    )
