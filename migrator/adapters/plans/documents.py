"""Plan documents: `PLANS/NAME.json`."""

import re
from collections.abc import Collection
from pathlib import Path

from migrator.adapters.durable import replacing
from migrator.decide.plan_document import read_document, write_document
from migrator.domain.errors import UsageError
from migrator.domain.plan import Plan

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SUFFIX = ".json"
_DEFAULT_NAME = re.compile(r"plan-(\d{4,})")


def check_plan_name(name: str) -> str:
    """The name, where it can be the name of a plan: a file name of plain characters. Raises UsageError."""
    if not _NAME.fullmatch(name) or name.endswith((".json", ".chunks", ".tmp")):
        raise UsageError(
            f"{name!r} cannot be the name of a plan",
            cause="a name has letters, digits, dots, dashes and underscores, begins with a letter or digit, and has no "
            "suffix .json, .chunks or .tmp",
            hint="for example: heavy-users-1",
        )
    return name


class PlanFiles:
    """The `PlanDocuments` port over a directory. `site_id` None: plans of any site are read (for looking at them)."""

    def __init__(self, directory: Path, *, site_id: str | None) -> None:
        self._directory = directory
        self._site_id = site_id

    def next_name(self, *, taken: Collection[str] = ()) -> str:
        """`plan-0001`, or the first number above all that are taken, by documents or by what planning left behind."""
        names = {entry.name for entry in (self._directory.iterdir() if self._directory.is_dir() else ())} | set(taken)
        numbers = [
            int(match.group(1))
            for name in names
            if (match := _DEFAULT_NAME.fullmatch(name.removesuffix(_SUFFIX).removesuffix(".chunks")))
        ]
        return f"plan-{max(numbers, default=0) + 1:04d}"

    def require_free(self, name: str) -> None:
        """Raises UsageError where the name cannot be one, or is taken."""
        file = self._file(name)
        if file.exists():
            raise _taken(name, file)

    def write(self, plan: Plan) -> tuple[str, str]:
        """Write atomically and durably; returns path and checksum. Raises UsageError where the name is taken."""
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
        """The plan and its checksum. Raises UsageError where it is missing or no plan, Refused where it was edited or
        is another site's.
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
        return read_document(text, name=name, site_id=self._site_id)

    def _known(self) -> str:
        names = sorted(file.stem for file in self._directory.glob(f"*{_SUFFIX}"))
        return f"there are {', '.join(names)}" if names else "there is none yet"

    def _file(self, name: str) -> Path:
        return self._directory / (check_plan_name(name) + _SUFFIX)


def _taken(name: str, file: Path) -> UsageError:
    return UsageError(
        f"there is a plan {name!r} already",
        cause=f"{file} exists; a plan is never overwritten",
        hint="choose another name, or leave it out for the next free one",
    )
