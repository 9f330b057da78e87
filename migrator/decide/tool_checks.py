"""Whether the programs that the migration needs are there and new enough. Pure: from their output to findings."""

from collections.abc import Sequence

from migrator.decide.rsync_features import FSYNC_VERSION, MINIMUM_VERSION, dotted, parse_features
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


def check_syncing(filesystem: str, output: bytes | None) -> Finding | None:
    """Can rsync put on the disks what it copies to a target of this type? None where it can, and where it is judged otherwise."""
    features = None if output is None else parse_features(output)
    problem = None if features is None else features.syncing_problem(filesystem)
    return None if problem is None else warning("rsync", problem, f"install rsync {dotted(FSYNC_VERSION)} or later")


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


def check_engine(engine: str, driver_problem: tuple[str, str] | None) -> list[Finding]:
    """Is there what `[transfer] engine` names? `driver_problem` is why fpsync or parsyncfp2 cannot be used, and what to
    do.
    """
    check = "engine"
    if driver_problem is not None:
        return [failure(check, f"[transfer] engine is `{engine}`: {driver_problem[0]}", driver_problem[1])]
    return [ok(check, f"`{engine}`")]


def check_slurm_programs(missing: Sequence[str]) -> Finding | None:
    """`missing` are programs of Slurm that are not found here; None where all are there."""
    if not missing:
        return None
    return failure(
        "slurm",
        f"[transfer] movers is `slurm`, and not found here: {', '.join(missing)}",
        "install Slurm's client (Debian: slurm-client), or set movers to `local`",
    )


def check_slurm_controller(exit_code: int, said: str) -> Finding | None:
    """What `scontrol ping` gave; None where a controller answers. A second one that is down does not matter."""
    if exit_code == 0 and " UP" in said:
        return None
    return failure(
        "slurm",
        f"no controller of Slurm answers: {said or f'scontrol ping ended with code {exit_code}'}",
        "start slurmctld; SLURM_CONF or /etc/slurm/slurm.conf says where it is looked for; `munge -n | unmunge` must work",
    )


def check_slurm_nodes(listed: str, wanted: int) -> Finding:
    """Are there as many nodes as [slurm] nodes asks for? `listed` is what `sinfo --Node --format=%N|%t` gave."""
    states = dict(line.strip().split("|", 1) for line in listed.split("\n") if "|" in line)
    usable = [name for name, state in states.items() if _takes_jobs(state)]
    if len(usable) >= wanted:
        return ok("slurm", f"{len(usable)} of {len(states)} nodes take jobs, {wanted} at once are asked for")
    others = ", ".join(f"{name} {state}" for name, state in sorted(states.items()) if name not in usable) or "no others"
    message = f"{len(usable)} of {len(states)} nodes take jobs, and [slurm] nodes asks for {wanted}: {others}"
    fix = "see `sinfo -R`; bring nodes back (`scontrol update NodeName=... State=RESUME`), or ask for fewer"
    return failure("slurm", message, fix) if not usable else warning("slurm", message, fix)


_TAKES_JOBS = frozenset({"idle", "mix", "alloc", "comp", "plnd"})


def _takes_jobs(state: str) -> bool:
    """In the words of `sinfo`; a mark behind them means that the node does not answer (`*`), or will not (`$`, `@`, ...),
    but `~`, `#` and `-`: it sleeps and can be woken, wakes up, or is kept free for a job of somebody's.
    """
    return state.strip().rstrip("~#-") in _TAKES_JOBS
