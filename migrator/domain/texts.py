"""What users are told of their cutover: one text before it, one while it goes on, one after it."""

from dataclasses import dataclass
from enum import StrEnum

TEXTS_DIRECTORY = b"texts"
"""Below `hooks_dir`: where the templates of a site lie."""

TEMPLATE_LIMIT_BYTES = 64 << 10


class UserText(StrEnum):
    """Which text."""

    BEFORE = "before"
    AT = "at"
    AFTER = "after"

    @property
    def file(self) -> bytes:
        """The name of its template."""
        return f"{self.value}-cutover.txt".encode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFacts:
    """What a text can say. Paths are absolute, except for that of the tree; None is what is not known, or not yet.

    `old_path` is where the files are (or were) before the move, `new_path` where they are afterwards; `link` the path that
    leads to either, None where a hook makes the switch. `back`: it is a rollback. `freeze_s` is predicted, `frozen_s`
    measured. `moved` is None before the end, and False where the user stays where he was, for `reason`.
    """

    site: str
    user: str
    tree: bytes
    old_path: bytes
    new_path: bytes
    link: bytes | None = None
    back: bool = False
    files: int
    size_bytes: int
    begins_at_s: float | None = None
    freeze_s: float | None = None
    frozen_s: float | None = None
    moved: bool | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLook:
    """A template as it lies there now. `problem` says why no text can be made of it, and `fix` how to mend it."""

    text: UserText
    path: bytes
    there: bool
    problem: str = ""
    fix: str = ""
