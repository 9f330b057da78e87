"""Whether the programs that the migration needs are there and new enough. Pure: from their output to findings."""

from migrator.decide.rsync_features import MINIMUM_VERSION, dotted, parse_features
from migrator.domain.finding import Finding, failure, ok, warning

_INSTALL_RSYNC = f"install rsync {dotted(MINIMUM_VERSION)} or later (Debian: `apt install rsync`)"


def check_rsync(program: str | None, output: bytes | None) -> Finding:
    """`program` is where rsync was found, None where it is missing; `output` what `--version` gave, None where it could
    not be run.
    """
    if program is None:
        return failure("rsync", "rsync is missing", _INSTALL_RSYNC)
    features = None if output is None else parse_features(output)
    if features is None:
        return failure(
            "rsync", f"{program} does not tell its version: it is no rsync, or cannot be run", _INSTALL_RSYNC
        )
    if problem := features.problem():
        return failure("rsync", f"{program}: {problem}", _INSTALL_RSYNC)
    return ok("rsync", f"rsync {features.version_text} ({program})")


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
        return failure("python", f"Python {dotted(version)} is too old", "use Python 3.11 or later")
    return ok("python", f"Python {dotted(version)}")
