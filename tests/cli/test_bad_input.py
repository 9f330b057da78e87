"""What is wrong is said in one clear message with the right exit code, and nothing is lost or changed by it."""

import json
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import click
import duckdb
import pytest
from click.testing import CliRunner

from migrator.cli import call
from migrator.cli.global_options import GlobalOptions
from migrator.core.clock import SystemClock
from migrator.core.errors import ExitCode
from migrator.ledger.locks import VOLUME, Locks
from tests.conftest import MakeXfs
from tests.support.cli_site import Site
from tests.support.run_site import REPOSITORY

pytestmark = pytest.mark.needs_root


def test_mistakes_in_a_site_file(site: Site) -> None:
    site.write(more='[verify]\nsampel = 0.5\n\n[reap]\nsmaller_than = "4 bananas"\n')
    site.fails(2, "scan", says=("line 23", "sampel", "sample", "line 26", "bananas"))
    site.write()
    site.works("init")
    site.write(trees='["home/*", "home"]')
    site.fails(2, "scan", says=("home", "overlap"))
    site.write(trees='["home/*"]\nmap = "users.csv"')
    site.fails(2, "scan", says=("users.csv",))
    site.write(more="rewrite_links = true\n")
    site.fails(2, "run", "--all", "--engine", "rsync", says=("rewrite_links",))
    site.file.unlink()
    site.fails(2, "scan", says=("no site file", "migrator init"))


@pytest.mark.guarantee("empty-mount")
def test_an_empty_directory_in_place_of_the_source_is_refused_and_never_no_files(planned: Site) -> None:
    planned.works("run", "--user-batch", "1")
    subprocess.run(["umount", planned.source], check=True)
    for arguments in (("scan",), ("run", "--user-batch", "2"), ("verify", "--user-batch", "1")):
        planned.fails(4, *arguments, says=("source",))


@pytest.mark.guarantee("foreign-plans")
def test_a_plan_that_was_edited(planned: Site) -> None:
    file = planned.directory / "plans" / "plan-0001.json"
    file.write_text(file.read_text().replace('"files": 20', '"files": 21'))
    planned.fails(4, "run", "--user-batch", "1", says=("plan-0001", "migrator plan"))


@pytest.mark.guarantee("foreign-plans")
def test_a_plan_of_another_site(planned: Site, scratch: Path, make_xfs: MakeXfs) -> None:
    directory = scratch / "other"
    directory.mkdir()
    other_source = make_xfs()
    (other_source.path / "home" / "eve").mkdir(parents=True)
    (other_source.path / "home" / "eve" / "file").write_bytes(b"x")
    other = Site(directory=directory, source=other_source.path, target=make_xfs().path)
    other.write()
    for verb in ("init", "doctor", "scan"):
        other.works(verb)
    other.works("plan", "--name", "foreign")
    plans = planned.directory / "plans"
    subprocess.run(["cp", "-a", *(directory / "plans").glob("foreign*"), plans], check=True)
    planned.fails(4, "run", "--user-batch", "1", "--plan", "foreign", says=("another site",))


def test_a_batch_that_does_not_exist_and_a_plan_that_does_not(planned: Site) -> None:
    planned.fails(2, "run", "--user-batch", "7", says=("7", "1 to 2"))
    planned.fails(2, "verify", "--user-batch", "7", says=("7", "1 to 2"))
    planned.fails(2, "run", says=("--user-batch",))
    planned.fails(2, "run", "--user-batch", "1", "--plan", "nope", says=("nope",))


def test_another_run_holds_the_lock(planned: Site) -> None:
    locks = Locks(planned.directory / "state" / "locks", SystemClock())
    with locks.hold("brick drain", VOLUME), locks.hold("plan", "plan"):
        planned.fails(5, "plan", says=("lock of plan",))
        planned.fails(5, "run", "--user-batch", "1", says=("lock of volume", "brick drain"))
        planned.fails(5, "verify", "--user-batch", "1", says=("lock of volume", "brick drain"))


def test_errors_are_json_where_json_is_asked_for(planned: Site) -> None:
    done = planned.call("run", "--user-batch", "7", "--json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert document["exit_code"] == 2
    assert document["error"]["hint"]


def test_flipped_bits_of_the_ledger_are_told_as_damage(planned: Site) -> None:
    file, chance = planned.directory / "state" / "ledger.db", random.Random(1)
    with sqlite3.connect(file) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ledger.close()
    whole, told = file.read_bytes(), 0
    for _ in range(40):
        content = bytearray(whole)
        for _ in range(40):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        for name in ("-wal", "-shm"):
            Path(f"{file}{name}").unlink(missing_ok=True)
        file.write_bytes(content)
        done = planned.call("status")
        assert done.returncode in (0, 1, 2, 4), done.stderr
        assert "internal error" not in done.stderr, done.stderr
        told += "ledger" in done.stderr
    assert told > 10


def test_a_ledger_of_another_site(planned: Site) -> None:
    planned.file.write_text(planned.file.read_text().replace('name = "bad"', 'name = "other"'))
    for verb in ("status", "report", "scan"):
        planned.fails(2, verb, says=("belongs to the site 'bad', not to 'other'",))


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_output_that_is_full_is_no_defect(planned: Site, more: tuple[str, ...]) -> None:
    argv = [sys.executable, "-m", "migrator", "--site", str(planned.file), "status", *more]
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, cwd=REPOSITORY, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "No space left" in done.stderr) == (1, True), done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.parametrize(
    "query",
    [
        "SELECT i FROM range(3000000) AS numbers(i) ORDER BY hash(i)",
        "COPY (SELECT i FROM range(100000) AS numbers(i)) TO '/dev/full' (FORMAT csv)",
    ],
)
def test_too_little_memory_and_a_full_disk_are_told_with_what_helps(tmp_path: Path, query: str) -> None:
    @click.command()
    @call.verb
    def command(_: GlobalOptions) -> ExitCode:
        with duckdb.connect(config={"memory_limit": "4MiB", "temp_directory": ""}) as connection:
            connection.execute(query).fetchall()
        return ExitCode.DONE

    done = CliRunner().invoke(command, obj=GlobalOptions(site_file=tmp_path / "site.toml"))
    assert (done.exit_code, "raise [site] memory" in done.stderr) == (1, True), done.output


def test_a_full_disk_of_an_index_is_told_with_what_helps(tmp_path: Path) -> None:
    @click.command()
    @call.verb
    def command(_: GlobalOptions) -> ExitCode:
        with closing(sqlite3.connect(tmp_path / "index.db")) as index:
            index.execute("PRAGMA max_page_count = 2")
            index.execute("CREATE TABLE names (name)")
            index.execute("INSERT INTO names VALUES (zeroblob(100000))")
        return ExitCode.DONE

    done = CliRunner().invoke(command, obj=GlobalOptions(site_file=tmp_path / "site.toml"))
    assert (done.exit_code, "free space on that disk" in done.stderr) == (1, True), done.output
