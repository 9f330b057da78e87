"""Texts for users, from the templates of the site: plain text by jinja2, in its sandbox.

A template that names something that does not exist is an error, also where the name stands in a branch that is not taken.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from jinja2 import StrictUndefined, TemplateError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from migrator.decide.texts import EXAMPLES, template_problem, text_words, unknown_names
from migrator.domain.entry import EntryType
from migrator.domain.errors import Refused
from migrator.domain.hooks import FileLook
from migrator.domain.paths import show
from migrator.domain.texts import TEMPLATE_LIMIT_BYTES, TEXTS_DIRECTORY, TextFacts, TextLook, UserText

_MEND = "mend it: docs/cutover.md lists the names that a text may use"


class TextTemplates:
    """The `Texts` port over the directory `texts` in `hooks_dir`."""

    def __init__(self, hooks_dir: bytes) -> None:
        self._directory = os.path.join(hooks_dir, TEXTS_DIRECTORY)
        self._environment = ImmutableSandboxedEnvironment(
            autoescape=False,  # plain text: nothing is markup in it
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )

    @property
    def directory(self) -> bytes:
        """Where they lie."""
        return self._directory

    def render(self, text: UserText, facts: TextFacts) -> str | None:
        """As the port says."""
        path = os.path.join(self._directory, text.file)
        try:
            template = self._read(path)
            return None if template is None else self._render(template, facts)
        except _Unusable as error:
            raise Refused(
                f"no text can be made of {show(path)}: {error.message}",
                hint=f"{error.fix}; or remove it, then nobody is told",
            ) from error
        except OSError as error:
            raise Refused(
                f"{show(path)} cannot be read: {error.strerror}", hint="mend what keeps it from it"
            ) from error

    def look(self) -> tuple[TextLook, ...]:
        """As the port says."""
        return tuple(self._look(text) for text in UserText)

    def _look(self, text: UserText) -> TextLook:
        path = os.path.join(self._directory, text.file)
        try:
            template = self._read(path)
            if template is None:
                return TextLook(text=text, path=path, there=False)
            for facts in EXAMPLES:
                self._render(template, facts)
        except _Unusable as error:
            return TextLook(text=text, path=path, there=True, problem=f"{show(path)}: {error.message}", fix=error.fix)
        return TextLook(text=text, path=path, there=True)

    def _render(self, template: str, facts: TextFacts) -> str:
        with _problems_told():
            if problem := unknown_names(find_undeclared_variables(self._environment.parse(template))):
                raise _Unusable(problem, _MEND)
            return self._environment.from_string(template).render(text_words(facts))

    def _read(self, path: bytes) -> str | None:
        """The template; None where there is none. Raises _Unusable, and OSError."""
        try:
            directory = os.path.realpath(self._directory, strict=True)
            fd = os.open(os.path.join(directory, os.path.basename(path)), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as stream:
            if problem := template_problem(_way(directory), _seen(path, os.fstat(fd)), os.geteuid()):
                raise _Unusable(problem.message, problem.fix)
            content = stream.read(TEMPLATE_LIMIT_BYTES + 1)
        if len(content) > TEMPLATE_LIMIT_BYTES:
            raise _Unusable(f"it has more than {TEMPLATE_LIMIT_BYTES >> 10} KiB", "make it shorter")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _Unusable(f"it is not UTF-8 (byte {error.start})", "write it in UTF-8") from error


class _Unusable(Exception):
    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


@contextmanager
def _problems_told() -> Iterator[None]:
    try:
        yield
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        raise _Unusable((f"line {line}: " if line else "") + str(error), _MEND) from error
    except (ArithmeticError, LookupError, TypeError, ValueError, OverflowError) as error:
        # What an expression of the template does with its values.
        raise _Unusable(str(error), _MEND) from error


def _way(directory: bytes) -> list[FileLook]:
    parts = [part for part in directory.split(b"/") if part]
    places = [b"/" + b"/".join(parts[:depth]) for depth in range(len(parts) + 1)]
    return [_seen(place, os.lstat(place)) for place in places]


def _seen(path: bytes, facts: os.stat_result) -> FileLook:
    mode = facts.st_mode
    return FileLook(path=path, type=EntryType.of_mode(mode), uid=facts.st_uid, mode=stat.S_IMODE(mode))
