"""A far end in a job of its own: the command that starts it, what `srun` says when it fails, and what Slurm says of jobs.

Seen with Slurm 22.05: `srun` holds back output that ends without a newline until more comes, unless it is told
`--unbuffered` (then the output goes through a raw pseudo terminal: 11 MB/s instead of 28, and every byte as it was); jobs
of `srun` are never put back into the queue (it has no `--no-requeue`: only batch jobs are).
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.paths import show
from migrator.ports.hosts import HostLost

PASSED_ON = ("SLURM_CONF", "HOME", "USER", "LOGNAME", "TMPDIR")
"""Nothing else of SLURM_*: inside an allocation it would make steps of `srun`'s jobs."""
_FIXED = (
    "--nodes=1",
    "--ntasks=1",
    "--unbuffered",
    "--chdir=/",
    "--mpi=none",
    "--cpu-bind=none",
)
_SAID_BYTES = 300
_FIELDS = "%i|%T|%r|%N|%k|%j"


class JobState(StrEnum):
    """A job, as far as it matters here. `GONE`: Slurm does not know it any more."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"
    NODE_FAILED = "node-failed"
    GONE = "gone"


_STATES = {
    **dict.fromkeys(
        ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"), JobState.PENDING
    ),
    **dict.fromkeys(("COMPLETING", "STAGE_OUT", "SIGNALING"), JobState.ENDING),
    **dict.fromkeys(
        (
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "TIMEOUT",
            "REVOKED",
        ),
        JobState.ENDED,
    ),
    "NODE_FAIL": JobState.NODE_FAILED,
}
"""What is in none of these is at work, or may be (RUNNING, SUSPENDED, STOPPED, RESIZING, and what is new)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as `squeue` shows it; `node` is empty before it has one."""

    id: str
    name: str
    state: JobState
    reason: str = ""
    node: str = ""
    comment: str = ""

    @property
    def active(self) -> bool:
        """Whether something may still run in it, or will."""
        return self.state in (JobState.PENDING, JobState.RUNNING, JobState.ENDING)


def list_jobs_argv(user: str) -> tuple[bytes, ...]:
    """All jobs of a user that Slurm still knows, also those that have ended. For `read_jobs`."""
    words = ("squeue", "--noheader", "--states=all", f"--user={user}", "--format", _FIELDS)
    return tuple(os.fsencode(word) for word in words)


def cancel_argv(name: str, user: str) -> tuple[bytes, ...]:
    """End all jobs of a name; no error where there are none."""
    return tuple(os.fsencode(word) for word in ("scancel", "--quiet", f"--user={user}", f"--name={name}"))


def read_jobs(output: bytes) -> list[Job]:
    """What `list_jobs_argv` printed. Other people's comments may hold anything: their jobs are skipped."""
    found: list[Job] = []
    for line in output.decode("utf-8", "replace").split("\n"):
        fields = line.split("|")
        if len(fields) != len(_FIELDS.split("|")):
            continue
        job_id, state, reason, node, comment, name = (field.strip() for field in fields)
        found.append(
            Job(
                id=job_id,
                name=name,
                state=_STATES.get(state.partition(" ")[0], JobState.RUNNING),
                reason="" if reason == "None" else reason,
                node="" if node == "(null)" else node,
                comment="" if comment == "(null)" else comment,
            )
        )
    return found


@dataclass(slots=True, kw_only=True)
class Srun:
    """The `Transport` of one job. It is used once: a job that has ended is followed by another one, not started again.

    `options` come after everything else, so that they win. `cpus` are for the streams; None leaves it to the site.
    """

    host: str
    job_name: str
    comment: str
    options: tuple[str, ...] = ()
    python: str = "python3"
    cpus: int | None = None
    avoid_nodes: Sequence[str] = ()
    used: bool = False
    lost: HostLost | None = None
    """How it ended, for those who ask later."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Where Slurm's configuration lies, and who we are."""
        return {name: os.environ[name] for name in PASSED_ON if name in os.environ}

    def argv(self, arguments: tuple[str, ...]) -> tuple[bytes, ...]:
        """`srun`, which is interrupted when this program is killed: that takes back a job that still waits, and does
        nothing to one that runs (once; there the far end sees the end of its input, and ends everything in good order).
        """
        if self.used:
            ended = HostLost(f"the job {self.job_name} of {self.host} has ended", hint="another one is asked for")
            known = self.lost or ended
            raise HostLost(known.message, cause=known.cause, hint=known.hint)
        self.used = True
        setpriv = shutil.which("setpriv")
        words = (
            *((setpriv, "--pdeathsig", "INT", "--") if setpriv else ()),
            "srun",
            *_FIXED,
            f"--job-name={self.job_name}",
            f"--comment={self.comment}",
            *(() if self.cpus is None else (f"--cpus-per-task={self.cpus}",)),
            *((f"--exclude={','.join(self.avoid_nodes)}",) if self.avoid_nodes else ()),
            *self.options,
            "--",
            self.python,
            *arguments,
        )
        return tuple(os.fsencode(word) for word in words)

    def explain(self, stderr: bytes, exit_code: int | None, *, connected: bool) -> HostLost:
        """What srun said, in words that help."""
        self.lost = self._explain(stderr, exit_code, connected=connected)
        return self.lost

    def _explain(self, stderr: bytes, exit_code: int | None, *, connected: bool) -> HostLost:
        said = stderr.decode("utf-8", "replace")
        for pattern, what, cause, hint in _FAILURES:
            if re.search(pattern, said):
                return HostLost(
                    f"{self.host} is not to be had from Slurm: {what}"
                    if not connected
                    else f"the job of {self.host} has ended: {what}",
                    cause=cause.format(python=self.python),
                    hint=hint.format(python=self.python),
                )
        last = show(stderr.strip()[-_SAID_BYTES:]) or "srun said nothing"
        if connected:
            return HostLost(
                f"the connection to the job of {self.host} was lost: {last}",
                cause="the node or the network is down, or the job was ended by somebody else",
                hint="`scontrol show job` tells more; another job is asked for when this one is known to have ended",
            )
        return HostLost(
            f"{self.host} is not to be had from Slurm (srun's exit code: {exit_code}): {last}",
            hint="try the same by hand: `srun --nodes=1 --ntasks=1 hostname`, with the options of [slurm] in site.toml",
        )


TOO_MUCH_REASONS = frozenset(
    (
        "PartitionConfig",
        "BadConstraints",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "ReqNodeNotAvail, May be reserved",
    )
)
"""Why a job waits that will wait until somebody changes something."""
TOO_MUCH_CAUSE = (
    "it asks for more than the partition has: every job of [slurm] nodes is a node of its own, with a processor for each "
    "stream"
)
TOO_MUCH_HINT = 'ask for less, or say it yourself: [slurm] options = ["--cpus-per-task=1"]'
CONTROLLER_SILENT = (
    r"Unable to contact slurm controller|Socket timed out on send/recv|Unable to establish control.machine|"
    r"Zero Bytes were transmitted|slurm_persist_conn_open"
)
_FAILURES = (
    (
        r"DUE TO TIME LIMIT",
        "its time limit is over",
        "the partition's limit, or --time, is shorter than the copying",
        'another job is asked for by itself; a longer limit saves that: [slurm] options = ["--time=2-00:00:00"]',
    ),
    (
        r"DUE TO NODE FAILURE|DUE TO PREEMPTION",
        "the node failed, or the job had to make room for another one",
        "`scontrol show node` says what it was",
        "another job is asked for by itself, when the lease of the old one is over",
    ),
    (
        r"Out Of Memory|oom.kill",
        "it ran out of memory",
        "the partition gives a job little memory, and the streams share it",
        'ask for more: [slurm] options = ["--mem=8G"]',
    ),
    (
        r"CANCELLED AT|Force Terminated job|has been revoked|Job has been cancelled",
        "it was cancelled",
        "somebody, or the site's rules, ended it with scancel",
        "another job is asked for by itself; ask the site's administrators where that goes on",
    ),
    (
        CONTROLLER_SILENT,
        "Slurm's controller does not answer",
        "slurmctld is stopped, or cannot be reached from this machine",
        "see `scontrol ping`; what runs in a job goes on meanwhile",
    ),
    (
        r"[Ii]nvalid partition|[Ii]nvalid account|[Ii]nvalid qos|[Ii]nvalid feature|[Ii]nvalid constraint",
        "Slurm does not know a partition, account or feature that is asked for",
        "an option of [slurm] in site.toml is mistyped",
        "compare it with `sinfo` and `sacctmgr show assoc`",
    ),
    (
        r"Requested node configuration is not available|More processors requested than permitted",
        "no node is as it is asked for",
        TOO_MUCH_CAUSE,
        TOO_MUCH_HINT,
    ),
    (
        r"unrecognized option|invalid option|Invalid .* specification",
        "it does not know an option",
        "an option of [slurm] in site.toml is not one of srun",
        "see `man srun`",
    ),
    (
        r"execve\(\).*No such file",
        "the node has no Python 3 of that name",
        "{python} is not installed there",
        'install Python 3.9 or later there, or name it in site.toml: [slurm] python = "/path/of/python3"',
    ),
    (
        r"[Mm]unge|Protocol authentication error|Invalid authentication credential",
        "Slurm does not believe this machine",
        "munged does not run here, or has another key than the cluster",
        "see `munge -n | unmunge`, and the same over to a node",
    ),
)
