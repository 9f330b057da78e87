"""Whether the programs that the migration needs are there and new enough. Pure: from their output to findings."""

import re

from migrator.domain.finding import Finding, failure, ok, warning

RSYNC_LEAST = (3, 2, 3)
"""What the rsync engine's options and messages need (its `MINIMUM_VERSION`; a test keeps both the same). Filters of
extended attributes and comparisons of nanoseconds alone came with 3.1.3 (rsync's NEWS).
"""
_RSYNC_VERSION = re.compile(rb"rsync +version v?(\d+)\.(\d+)(?:\.(\d+))?", re.ASCII)
RSYNC_NEEDS = ("hardlinks", "symlinks", "symtimes", "ACLs", "xattrs", "64-bit files")
_INSTALL_RSYNC = "install rsync {least} or later (Debian: `apt install rsync`)"


def rsync_version(output: bytes) -> tuple[int, int, int] | None:
    """The version in the output of `rsync --version`."""
    found = _RSYNC_VERSION.search(output)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def check_rsync(program: str | None, output: bytes | None) -> Finding:
    """`program` is where rsync was found, None where it is missing; `output` what `--version` gave, None where it could
    not be run.
    """
    least = _dotted(RSYNC_LEAST)
    fix = _INSTALL_RSYNC.format(least=least)
    if program is None:
        return failure("rsync", "rsync is missing", fix)
    version = rsync_version(output) if output is not None else None
    if output is None or version is None:
        return failure("rsync", f"{program} does not tell its version: it is no rsync, or cannot be run", fix)
    shown = _dotted(version)
    if version < RSYNC_LEAST:
        return failure("rsync", f"rsync {shown} ({program}) is too old: {least} is the least", fix)
    known = [word.strip() for word in _capabilities(output).split(",")]
    lacking = [word for word in RSYNC_NEEDS if word not in known]
    if lacking:
        return failure("rsync", f"rsync {shown} ({program}) was built without {', '.join(lacking)}", fix)
    return ok("rsync", f"rsync {shown} ({program})")


def check_gluster(kind: str, command: str, program: str | None) -> Finding | None:
    """Where the source is a Gluster volume: is the command there that asks it? None for another source."""
    if kind != "gluster":
        return None
    if program is None:
        return failure(
            "gluster",
            f"the command {command} is missing: nobody can say whether all bricks are up",
            "install glusterfs-cli on a peer of the pool, or let [source] gluster name a script that asks one",
        )
    return ok("gluster", program)


def check_user(euid: int) -> Finding:
    """Only root can carry everything over."""
    if euid == 0:
        return ok("user", "root")
    return warning(
        "user",
        f"not root (uid {euid}): owners, other users' files and device nodes cannot be copied, streams not confined",
        "run migrator as root; without, only a rehearsal with files of your own works",
    )


def check_confinement(euid: int, problem: str | None) -> Finding:
    """`problem` is why a stream cannot be confined to its tree, None where it can."""
    if euid != 0:
        return ok("confinement", "streams of a user that is not root can do no more than that user")
    if problem is None:
        return ok("confinement", "each stream sees its own tree and nothing else")
    return failure(
        "confinement",
        f"streams cannot be confined to their trees: {problem}",
        "run it where root may make mount namespaces: not in an unprivileged container (CAP_SYS_ADMIN)",
    )


def check_python(version: tuple[int, int, int]) -> Finding:
    """The interpreter that runs this."""
    if version < (3, 11):
        return failure("python", f"Python {_dotted(version)} is too old", "use Python 3.11 or later")
    return ok("python", f"Python {_dotted(version)}")


def _capabilities(output: bytes) -> str:
    """What stands below `Capabilities:`, up to the next heading."""
    text = output.decode("ascii", "replace")
    found = re.search(r"^Capabilities:\n((?:[ \t]+.*\n?)+)", text, re.MULTILINE)
    return re.sub(r"\s+", " ", found[1]) if found else ""


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(str(part) for part in version)
