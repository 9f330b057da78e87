"""`plan --what-if`: the time and the room that given sizes take."""

import json
import re
from pathlib import Path

import pytest

from migrator.cli.plan import parse_what_if
from migrator.core.errors import UsageError
from migrator.core.units import format_duration
from migrator.plan.model import TransferCost
from migrator.plan.rules_what_if import HOSTS, AskedSizes, Sizing, size_up
from tests.support.cli_site import Site

COST = TransferCost(s_per_file=0.002, s_per_byte=1e-8, streams=4, basis="measured")
ASKED = AskedSizes(size_bytes=10**12, files=10**6, streams=4)


def durations(sizing: Sizing) -> dict[int, float]:
    return {time.hosts: time.duration_s for time in sizing.times}


def test_twice_the_hosts_take_half_the_time_until_the_given_rate_is_reached() -> None:
    free = durations(size_up(ASKED, COST))
    assert free[1] == pytest.approx((10**6 * 0.002 + 10**12 * 1e-8) / 4)
    assert all(free[hosts] == pytest.approx(free[1] / hosts) for hosts in HOSTS)
    limited = size_up(AskedSizes(size_bytes=10**12, files=10**6, streams=4, rate_bytes_per_s=10**9), COST)
    assert durations(limited) == {hosts: max(free[hosts], 1000.0) for hosts in HOSTS}
    assert [time.limited_by_rate for time in limited.times] == [free[hosts] < 1000.0 for hosts in HOSTS]


def test_the_table_of_the_page_is_what_the_calculator_gives() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sizing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (.+) \| .*the (streams|given rate) \|$", page, flags=re.MULTILINE)
    (question,) = re.findall(r"--what-if (\S+)", page)
    sizing = size_up(parse_what_if(question, streams=4), None)
    assert rows == [
        (
            str(time.hosts),
            str(time.streams),
            format_duration(time.duration_s),
            "given rate" if time.limited_by_rate else "streams",
        )
        for time in sizing.times
    ]


def test_room_grows_with_the_files_alone() -> None:
    one, ten = size_up(ASKED, COST), size_up(AskedSizes(size_bytes=1, files=10**7, streams=4), COST)
    assert (ten.state_bytes, ten.spill_bytes) == (10 * one.state_bytes, 10 * one.spill_bytes)


@pytest.mark.parametrize("files", ["100000000", "100M", "1e8", "0.1G"])
def test_sizes_are_given_as_people_write_them(files: str) -> None:
    asked = parse_what_if(f"bytes=340TB, files={files},rate=5GB/s", streams=3)
    assert asked == AskedSizes(size_bytes=340 * 10**12, files=10**8, streams=3, rate_bytes_per_s=5 * 10**9)
    assert parse_what_if("bytes=1,files=1,streams=8", streams=3).streams == 8


@pytest.mark.parametrize(
    "text",
    ["", "bytes=1TB", "files=3", "bytes=1TB,files=many", "bytes=1TB,files=1,files=2", "bytes=1,files=1,size=3",
     "bytes=1,files=1,streams=0", "bytes=1,files=1,streams=²", "bytes=1 parsec,files=1"],
)  # fmt: skip
def test_unknown_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_what_if(text, streams=4)


def test_the_verb_answers_before_any_scan_and_makes_no_plan(tmp_path: Path) -> None:
    site = Site(tmp_path, tmp_path / "source", tmp_path / "target")
    (site.source / "home" / "alice").mkdir(parents=True)
    site.target.mkdir()
    site.write()
    site.works("init")
    question = ("plan", "--what-if", "bytes=340TB,files=100M,rate=5GB/s")
    answer = json.loads(site.call(*question, "--json").stdout)
    assert answer["asked"]["files"] == 10**8
    assert [time["hosts"] for time in answer["times"]] == list(HOSTS)
    site.works(*question)
    site.fails(2, *question, "--quotas", says=())
    assert list((tmp_path / "plans").glob("*")) == []
