"""What is asked of Slurm and what its words mean, and what a program is made of."""

import pytest

from migrator.hosts.local import libraries
from migrator.hosts.ports import HostLost
from migrator.hosts.slurm import JobState, SlurmJob, Srun, read_jobs


def srun(**changes: object) -> Srun:
    return Srun(host="slurm-1", job_name="migrator-x", comment="migrator:x", **changes)  # type: ignore[arg-type]


def words(transport: Srun) -> list[str]:
    argv = [word.decode() for word in transport.argv(("-c", "code; more"))]
    return argv[argv.index("srun") :]


def test_jobs_are_read() -> None:
    output = (
        b"12|RUNNING|None|n1|migrator:x:b:1:2|migrator-x\n"
        b"13|PENDING|Resources|||migrator-y\n"
        b"14|COMPLETING|None|n2|(null)|sleep\n"
        b"15|CANCELLED|None|n2|(null)|sleep\n"
        b"16|TIMEOUT|TimeLimit|n2|(null)|sleep\n"
        b"17|NODE_FAIL|None|n3|(null)|sleep\n"
        b"18|NEW_STATE|None|n3|(null)|sleep\n"
        b"19|RUNNING|None|n3|a|b|migrator-z\n"
    )
    jobs = read_jobs(output)
    assert jobs[0] == SlurmJob(
        id="12", name="migrator-x", state=JobState.RUNNING, reason="", node="n1", comment="migrator:x:b:1:2"
    )
    assert [(job.id, job.state, job.active) for job in jobs] == [
        ("12", JobState.RUNNING, True),
        ("13", JobState.PENDING, True),
        ("14", JobState.RUNNING, True),
        ("15", JobState.ENDED, False),
        ("16", JobState.ENDED, False),
        ("17", JobState.NODE_FAILED, False),
        ("18", JobState.RUNNING, True),
    ]
    assert jobs[1].reason == "Resources"
    assert read_jobs(b"") == []


def test_options_of_the_site_come_last() -> None:
    found = words(srun(options=("--cpus-per-task=2", "--partition=movers"), cpus=8, avoid_nodes=("n1", "n2")))
    assert found.index("--cpus-per-task=8") < found.index("--cpus-per-task=2") < found.index("--")
    assert "--exclude=n1,n2" in found
    assert "--unbuffered" in found, "without it output without a newline is held back"
    assert found[found.index("--") + 1 :] == ["python3", "-c", "code; more"]


def test_nothing_of_an_allocation_around_us_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/other.conf")
    assert "SLURM_JOB_ID" not in srun().environment
    assert srun().environment["SLURM_CONF"] == "/etc/slurm/other.conf"


def test_a_job_is_asked_for_once_and_then_says_how_it_ended() -> None:
    transport = srun()
    words(transport)
    with pytest.raises(HostLost, match="has ended"):
        words(transport)
    transport.explain(b"slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", 1, connected=True)
    with pytest.raises(HostLost, match="CANCELLED AT"):
        words(transport)


@pytest.mark.parametrize(
    ("said", "connected", "expected"),
    [
        (b"slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-21T03:25:19 DUE TO TIME LIMIT ***", True, "time limit"),
        (b"slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-21T03:25:19 DUE TO NODE FAILURE ***", True, "NODE FAILURE"),
        (b"srun: error: Unable to allocate resources: Unable to contact slurm controller (connect failure)", False, "does not answer"),
        (b"srun: error: invalid partition specified: none", False, "invalid partition specified: none"),
        (b"slurmstepd: error: execve(): python9: No such file or directory", False, "no Python 3"),
        (b"something else", False, "something else"),
        (b"", True, "srun printed nothing"),
    ],
)  # fmt: skip
def test_messages_of_srun_are_explained(said: bytes, connected: bool, expected: str) -> None:
    error = srun().explain(said, 1, connected=connected)
    assert expected in error.message
    assert error.hint


def test_a_missing_library_is_named() -> None:
    with pytest.raises(ValueError, match="libpopt"):
        libraries(b"\tlibpopt.so.0 => not found\n")
