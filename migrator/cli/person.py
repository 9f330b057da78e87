"""Who gives a command."""

import getpass
import os

from migrator.domain.errors import UsageError


def who() -> str:
    """As far as that is known: root by sudo has another name before. Raises UsageError."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError) as error:
        raise UsageError(f"who gives this command is not known: {error}", hint="set LOGNAME") from None
    before = os.environ.get("SUDO_USER")
    return f"{name} (sudo by {before})" if before else name
