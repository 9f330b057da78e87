"""The texts that users get of their cutover."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.texts import TextFacts, TextLook, UserText


class Texts(Protocol):
    """The templates of a site. Blocking; changes nothing."""

    @property
    def directory(self) -> bytes:
        """Where they lie."""

    def render(self, text: UserText, facts: TextFacts) -> str | None:
        """The text for one user; None where the site has no such template. Raises Refused where it has one that cannot be
        used: then nobody is told something wrong.
        """

    def look(self) -> Sequence[TextLook]:
        """Each template, and whether a text can be made of it whatever the facts are. Raises OSError."""
