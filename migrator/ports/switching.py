"""The switch of a user's path: the symlink that `[cutover] link` names."""

from typing import Protocol

from migrator.domain.switching import LinkLook, SwitchOutcome


class Links(Protocol):
    """The users' links. Blocking: a link may lead to a mount that does not answer. Thread-safe for different users; of one
    user no two calls may be under way (the cutover's lock sees to that).

    What is trusted: root, and every directory on the way to a link that is root's alone to write to. A symlink on the way
    is followed where it is root's. Anything else on the way is refused before the link is looked at.
    """

    def read_link(self, user: str) -> LinkLook:
        """What stands there now. Changes nothing; may be called at any time. Raises Refused for a name of a user that
        cannot be part of a path. What cannot be read is said in the look.
        """

    def switch(self, user: str, *, expected_old: bytes, new: bytes) -> SwitchOutcome:
        """Exchange a link that leads to `expected_old` for one that says `new`, in one step: whoever opens the path finds
        the one or the other. Both are absolute paths of directories; what a link leads to is compared, not what it says.
        The owner of the link is kept. On return it is on the disk.

        May be called again, also after a kill at any instant: what leads to `new` is left, and what the call before left
        beside is cleared away. The same call the other way round switches back.

        Raises Refused, with nothing changed, where the link is no symlink, leads elsewhere, or the way to it can be
        changed by others; where somebody else replaced it at the same time, what he put there stays. Raises OSError where
        the file system fails: then call again.
        """
