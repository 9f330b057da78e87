"""`bench` as it is typed."""

import json
import os
from pathlib import Path

import pytest

from tests.bench.bench_world import cli_site
from tests.support.cli_site import Site

QUICK = ("--scale", "0.0002")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return cli_site(tmp_path)


def left_in(site: Site) -> set[str]:
    return {*os.listdir(site.source), *os.listdir(site.target)} - {"home", ".migrator-sentinel"}


def test_what_was_run_is_listed_compared_and_drawn(site: Site, tmp_path: Path) -> None:
    other = tmp_path / "other & <more>"
    other.mkdir()
    on = ("--on", "source", "--on", str(other))
    done = site.call("bench", "run", "--suite", "latency", *on, "--runs", "2", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "scale 0.0002" in done.stdout
    assert "run 2 of 2 on source" in done.stderr
    assert left_in(site) == set()
    assert os.listdir(other) == []

    (record,) = json.loads(site.call("bench", "list", "--json").stdout)["benchmarks"]
    assert (record["suite"], record["state"], record["scale"]) == ("latency", "done", 0.0002)

    page = tmp_path / "page.html"
    done = site.call("bench", "compare", str(record["id"]), "--html", str(page), "--json")
    (comparison,) = json.loads(done.stdout)
    assert [step["step"] for step in comparison["steps"]] == ["read-429", "read-93347"]
    for step in comparison["steps"]:
        assert [side["label"] for side in step["sides"]] == ["source", str(other)]
        assert all(side["figures"]["count"] == 2 for side in step["sides"])
        assert step["contrasts"][0]["speed"]["count"] == 2
        assert step["published"]
    text = page.read_text()
    assert "<progress" in text
    assert "other &amp; &lt;more&gt;" in text
    assert "<more>" not in text


def test_mistakes_are_told(site: Site) -> None:
    site.fails(2, "bench", "run", "--suite", "latency", says=("on which file systems",))
    site.fails(2, "bench", "run", "--suite", "latency", "--on", "somewhere", says=("no absolute path",))
    for words in (("bench", "list", "--scale"), ("tune", "--max-load")):
        done = site.call(*words, "nan")
        assert done.returncode == 2
        assert "nan is no number" in done.stderr
    site.fails(2, "bench", "compare", says=("nothing was measured",))
    site.fails(2, "bench", "compare", "12", says=("no benchmark 12",))
    site.fails(2, "bench", "run", "--suite", "latency", "--on", "target", "--hosts", "gl7", *QUICK, says=("host gl7",))
    for place in ("/nowhere/at/all", str(site.file)):
        words = (f"no directory {place}", "host localhost")
        site.fails(1, "bench", "run", "--suite", "latency", "--on", place, *QUICK, says=words)
    site.fails(4, "bench", "run", "--suite", "streaming", "--on", "target", "--scale", "100", says=("free", "--scale"))


def test_a_directory_of_users_is_not_worked_in(site: Site, tmp_path: Path) -> None:
    """Scans leave benchmarks out of the root alone, and a user may exchange what lies in his own directory."""
    (tmp_path / "way").symlink_to(site.source / "home")
    for place in (site.source / "home/alice", tmp_path / "way" / "alice"):
        on = ("bench", "run", "--suite", "latency", "--on", str(place), *QUICK)
        site.fails(2, *on, says=("lies in the source", "--on source"))
    assert list((site.source / "home/alice").iterdir()) == [site.source / "home/alice/letter"]


def test_the_root_of_the_source_is_the_source_however_it_is_named(site: Site) -> None:
    on = ("--on", f"{site.source}/", "--on", "source", "--on", "/tmp", "--on", "/tmp/")
    done = site.call("bench", "run", "--suite", "latency", *on, "-n", "--json", *QUICK)
    assert [one["place"]["label"] for one in json.loads(done.stdout)["room"]] == ["source", "/tmp"], "each once"


def test_the_suites_are_listed_without_a_site(tmp_path: Path) -> None:
    listing = json.loads(Site(tmp_path, tmp_path, tmp_path).call("bench", "list", "--scale", "1", "--json").stdout)
    assert len(listing["suites"]) == 9
    assert listing["benchmarks"] == []
