"""With `[cutover] require_archive`, a tree is purged only if that many archives hold all of its files by their digests."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.cutover.model import CutoverState
from migrator.cutover.model_snapshot import LinkState
from migrator.hooks.model import HookStep
from migrator.purge.model import PurgeItem, PurgeOutcome, TreePurge
from migrator.purge.rules import digest_record, proofs_named
from tests.purge.purge_site import PurgeSite, purge_site
from tests.purge.test_purge import CUTOVER, asked, cli_site
from tests.support.kills import DoingHooks
from tests.support.run_site import RealSite
from tests.support.xfs import XfsMount

pytestmark = pytest.mark.needs_root

__all__ = ["cli_site"]

SAMPLE = Path(__file__).parents[2] / "hooks/pre-purge.d/50-archive"
FILES = {b"a": b"one", b"d/\xff\n": b"two", b"d/empty": b""}


def fill(tree: Path) -> None:
    (tree / "d").mkdir()
    for name, content in FILES.items():
        Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).write_bytes(content)
    (tree / "symlink").symlink_to("a")


@pytest.fixture
def site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Iterator[PurgeSite]:
    with purge_site(scratch / "site", xfs_source.path, xfs_target.path, fill) as made:
        yield made


def listed(site: PurgeSite, changes: Mapping[bytes, bytes | None] | None = None) -> bytes:
    """What an archive with these files says of them; the digests are those of the manifest where the content is equal."""
    known = dict(record.split(b"  ", 1)[::-1] for record in (answers(site) / "manifest").read_bytes().split(b"\0")[:-1])
    assert set(known) == set(FILES)
    for name, content in (changes or {}).items():
        if content is None:
            del known[name]
        else:
            known[name] = hashlib.md5(content).hexdigest().encode()
    return b"".join(digest + b"  ./" + name + b"\0" for name, digest in known.items())


def answers(site: PurgeSite) -> Path:
    return site.world.directory / "temporary/archives" / site.record.own_name


def asking(site: PurgeSite, said: Mapping[str, bytes | None], *, required: int = 1, code: int = 0) -> TreePurge:
    """A purge whose hook answers with these lists; None is the right one."""
    site.require_archive = required

    def answer() -> None:
        for name, text in said.items():
            (answers(site) / f"{name}.digests").write_bytes(listed(site) if text is None else text)
            (answers(site) / f"{name}.archive").write_text(f"tape of {name}\n")

    site.hooks = DoingHooks(deeds={HookStep.PURGE: answer}, exit_codes={"pre-purge": code})
    before = {path: path.lstat() for path in site.source.rglob("*")}
    done = site.purge()
    if done.outcome is not PurgeOutcome.PURGED:
        assert {path: path.lstat() for path in site.source.rglob("*")} == before
        assert site.state is CutoverState.RETAINED
    return done


@pytest.mark.guarantee("second-copies")
def test_archives_without_every_file_do_not_count(site: PurgeSite) -> None:
    asking(site, {})
    right = listed(site)
    for text, evidence in (
        (listed(site, {b"a": None}), "home/alice/a"),
        (listed(site, {b"d/\xff\n": b"other"}), "home/alice/d/\\xff\\x0a"),
        (right + right.partition(b"\0")[0] + b"\0", ""),
        (b"", ""),
        (right[:-1], ""),
        (right + b"a" * 70_000, ""),
        (right + b"zz  a\0", "zz  a"),
    ):
        done = asking(site, {"hpss": text})
        assert (done.outcome, done.archives) == (PurgeOutcome.REFUSED, ())
        assert evidence in done.reasons[0], done.reasons
    for said, code in (({}, 0), ({"a b": None}, 0), ({}, 1)):
        done = asking(site, said, code=code)
        assert (done.outcome, done.archives) == (PurgeOutcome.REFUSED, ())
    assert not site.world.ledger.second_copies.all()


def test_a_proven_archive_is_kept_until_another_manifest(site: PurgeSite) -> None:
    """Also if a later hook refuses, or if the program was killed before it took the answer."""
    assert asking(site, {"hpss": None}, required=2, code=1).outcome is PurgeOutcome.REFUSED
    (one,) = site.world.ledger.second_copies.all()
    assert (one.name, one.place, one.files, one.size_bytes, one.extra) == ("hpss", "tape of hpss", 3, 6, 0)
    (answers(site) / "tsm.digests").write_bytes(listed(site) + b"00  more\0")
    (answers(site) / "tsm.archive").write_text("tape 2")
    done = asking(site, {}, required=3)
    assert (done.outcome, done.archives) == (PurgeOutcome.REFUSED, ("hpss", "tsm"))
    assert {path.name for path in answers(site).glob("*.proven")} == {"hpss.proven", "tsm.proven"}
    assert [one.extra for one in site.world.ledger.second_copies.all()] == [0, 1]
    assert site.dry_run().trees[0].archives == ("hpss", "tsm")
    # Another verification, of the cutover or of what a rollback carried to the source, is another proof.
    item = PurgeItem(record=site.record, proof=site.proof)
    again = replace(site.proof, manifest_digest="other")
    assert proofs_named(item) == one.manifests
    assert one.manifests not in (
        proofs_named(replace(item, carried=(again,))),
        proofs_named(replace(item, proof=again)),
    )
    assert not site.world.ledger.second_copies.of_tree(one.tree, "other")
    assert asking(site, {"hpss": None}).outcome is PurgeOutcome.PURGED
    assert not answers(site).exists()


def test_an_archive_that_a_hook_has_lost_no_longer_counts(site: PurgeSite) -> None:
    assert asking(site, {"hpss": None, "tsm": None}, required=3).archives == ("hpss", "tsm")
    site.require_archive = 2
    site.hooks = DoingHooks(deeds={HookStep.PURGE: (answers(site) / "tsm.proven").unlink})
    done = site.purge()
    assert (done.outcome, done.archives) == (PurgeOutcome.REFUSED, ("hpss",))
    assert site.dry_run().trees[0].archives == ("hpss",)
    # A job that a hook began may find it later.
    (answers(site) / "hpss.proven").unlink()
    done = asking(site, {})
    assert (done.outcome, done.archives) == (PurgeOutcome.REFUSED, ())
    assert asking(site, {"hpss": None, "tsm": None}, required=2).outcome is PurgeOutcome.PURGED


def test_guards_are_asked_again_after_the_archives_were_made(site: PurgeSite) -> None:
    """Which may take days: what was asked before is old."""
    asking(site, {"hpss": None}, required=2)

    def switched_back() -> None:
        site.leads_to = LinkState.SOURCE

    site.require_archive, site.hooks = 1, DoingHooks(deeds={HookStep.PURGE: switched_back})
    done = site.purge()
    assert (done.outcome, site.state) == (PurgeOutcome.REFUSED, CutoverState.RETAINED)
    assert site.source.is_dir()


@given(tree=st.binary(min_size=1), path=st.binary(min_size=1), digest=st.binary(min_size=1))
def test_a_record_is_any_path(tree: bytes, path: bytes, digest: bytes) -> None:
    record = digest.hex().encode() + b"  " + b"./" + path
    assert digest_record(record, tree) == (tree + b"/" + path, digest)


def test_the_sample_lists_every_name(tmp_path: Path) -> None:
    """Also long, sparse and linked ones; the name of the archive has nothing that hsi takes for a command."""
    tree, answer, place = (tmp_path / name for name in ("tree", "answers", "place"))
    deep = tree / "/".join(["d" * 90] * 3)
    for one in (deep, answer, place):
        one.mkdir(parents=True)
    for name in (b"plain", b"\xff\nname", b"-dash", b"back\\slash", b"\xc3\xa4", b"empty"):
        Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).write_bytes(name)
    for sparse in (deep / "sparse", tree / "sparse\udcff", tree / "sp\u00e4rse"):
        with sparse.open("wb") as stream:
            stream.truncate(1 << 20)
            stream.seek(1 << 21)
            stream.write(b"end")
        os.link(sparse, sparse.with_name("linked to " + sparse.name))
    (tree / "symlink").symlink_to("plain")
    os.mkfifo(tree / "fifo")
    for special in ("symlink", "fifo"):
        os.link(tree / special, tree / f"other {special}", follow_symlinks=False)
    known = {
        os.fsencode(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest().encode()
        for path in tree.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    (answer / "manifest").write_bytes(b"".join(b"%s  %s\0" % item[::-1] for item in sorted(known.items())))
    (tmp_path / "archives.conf").write_text(f"second tar.zst {place}\n")
    facts = {
        "version": 1, "archives": str(answer), "digest": "sha256", "trees": [{"path": "home/a; rm b"}], "site": {"id": "0123456789"},
    }  # fmt: skip
    environment = {
        "PATH": os.environ["PATH"], "LC_ALL": "C", "MIGRATOR_ARCHIVES": str(answer), "MIGRATOR_OLD_PATH": str(tree),
        "MIGRATOR_SITE": str(tmp_path / "site.toml"), "MIGRATOR_MANIFEST": "/m/verify-1/manifest.parquet",
    }  # fmt: skip

    def call() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", str(SAMPLE)]
        return subprocess.run(
            command, input=json.dumps(facts), env=environment, capture_output=True, text=True, check=False
        )

    assert call().returncode == 0
    records = (answer / "second.digests").read_bytes().split(b"\0")[:-1]
    assert sorted(records) == sorted(b"%s  %s" % item[::-1] for item in known.items())
    (archive,) = place.iterdir()
    assert archive.name.startswith("home%2Fa%3B%20rm%20b.verify-1.01234567.")
    # One that is proven is left as it is; one that is lost does not count, and is made again.
    made, proven = archive.stat().st_mtime_ns, answer / "second.proven"
    proven.touch()
    assert (call().returncode, archive.stat().st_mtime_ns, proven.exists()) == (0, made, True)
    archive.unlink()
    assert (call().returncode, archive.exists(), proven.exists()) == (0, True, False)
    with (tmp_path / "archives.conf").open("a") as conf:
        conf.write(f"third tar.zst {place}/\n")
    assert call().returncode not in (0, 62)


def test_the_sample_makes_archives_that_count(cli_site: RealSite) -> None:
    source = cli_site.source.path / "home/alice"
    hook = cli_site.directory / "hooks/pre-purge.d/50-archive"
    hook.parent.mkdir(parents=True)
    text = SAMPLE.read_text()
    hook.write_text(text.replace("/usr/bin/python3", sys.executable, 1))
    hook.chmod(0o755)
    post, told = cli_site.directory / "hooks/post-purge.d/50-archive", cli_site.directory / "told"
    post.parent.mkdir()
    post.write_text(f'#!/bin/sh\necho "$MIGRATOR_USER $MIGRATOR_STATE" >>"{told}"\n')
    post.chmod(0o755)
    cli_site.write(transfer=CUTOVER.format(rate=1000) + "require_archive = 2\n")
    place = cli_site.directory / "second"
    place.mkdir()
    (cli_site.directory / "archives.conf").write_text(f"# NAME KIND PLACE\nsecond tar.zst {place}\n")
    shown = asked(cli_site, "--user", "alice", "--dry-run")
    words = ("--user", "alice", "--confirm", shown["checksum"])
    refused = asked(cli_site, *words, code=4)
    assert refused["trees"][0]["archives"] == ["second"]
    assert source.is_dir()
    (archive,) = place.iterdir()
    made = archive.stat().st_mtime_ns
    status = json.loads(cli_site.migrator("status", "--json").stdout)
    assert [(one["name"], one["files"]) for one in status["archives"]] == [("second", 62)]
    assert "alice has 1" in " ".join(cli_site.migrator("status", "--details").stdout.split())
    dry = " ".join(cli_site.migrator("purge", "--user", "alice", "--dry-run").stdout.split())
    assert "have to make archives of alice yet" in dry
    third = cli_site.directory / "third"
    third.mkdir()
    with (cli_site.directory / "archives.conf").open("a") as conf:
        conf.write(f"third tar.zst {third}\n")
    (done,) = asked(cli_site, *words)["trees"]
    assert (done["outcome"], done["archives"]) == ("purged", ["second", "third"])
    assert archive.stat().st_mtime_ns == made
    assert not source.exists()
    assert told.read_text() == "alice refused\nalice done\n"
