"""rsync's command line, its progress, and which rsync it is."""

from pathlib import Path

import pytest

from migrator.core.states import ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.hosts.ports import Command
from migrator.plan.model import ListedPath
from migrator.transfer.engines.rsync import ProgressParser, RsyncEngine
from migrator.transfer.engines.rules_rsync import RsyncFeatures, parse_features
from migrator.transfer.model import StreamCounters, StreamView
from migrator.transfer.ports import ChunkWork
from tests.support.beegfs_like import BEEGFS_CAPABILITIES

_FIXTURES = Path(__file__).parents[1] / "fixtures" / "rsync"
_OLD = RsyncFeatures(version=(3, 2, 7), confine_root=False)
_NEW = RsyncFeatures(version=(3, 5, 0), confine_root=True, fsync=True)
_VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")
_PLAIN = TargetCapabilities()


def _command(
    *, kind: ChunkKind = ChunkKind.FILES, capabilities: TargetCapabilities = _PLAIN, features: RsyncFeatures = _NEW
) -> Command:
    engine = RsyncEngine(program=b"/usr/bin/rsync", features=features, privileged=True)
    paths = [ListedPath(path=b"home/alice/x", size_bytes=0)]
    return engine.command(ChunkWork(kind=kind, tree=b"home/alice", paths=paths, capabilities=capabilities), _VIEW)


@pytest.mark.parametrize("kind", [ChunkKind.DIRECTORIES, ChunkKind.FILES, ChunkKind.DIRECTORY_TIMES])
@pytest.mark.parametrize("capabilities", [_PLAIN, BEEGFS_CAPABILITIES])
def test_what_must_always_and_never_be_there(kind: ChunkKind, capabilities: TargetCapabilities) -> None:
    argv = _command(kind=kind, capabilities=capabilities).argv
    assert {
        b"--archive",
        b"--numeric-ids",
        b"--files-from=-",
        b"--from0",
        b"--no-implied-dirs",
        b"--no-recursive",
    } <= set(argv)
    assert not any(
        b"delete" in word or b"ignore" in word or word == b"--recursive" or b"inplace" in word for word in argv
    )
    assert b"--filter=-x trusted.**" in argv
    assert b"--filter=-x **" in argv
    assert (b"--omit-dir-times" in argv) == (kind is not ChunkKind.DIRECTORY_TIMES)


def test_what_the_target_keeps_decides() -> None:
    plain, beegfs = _command().argv, _command(capabilities=BEEGFS_CAPABILITIES).argv
    assert b"--modify-window=-1" in plain
    assert b"--modify-window=-1" not in beegfs
    assert b"--filter=+x security.**" in plain
    assert b"--filter=+x security.**" not in beegfs
    assert {b"--acls", b"--xattrs", b"--hard-links", b"--sparse", b"--fsync"} <= set(beegfs)
    assert b"--fsync" not in plain
    assert b"--fsync" not in _command(features=_OLD, capabilities=BEEGFS_CAPABILITIES).argv
    nothing = TargetCapabilities(
        keeps_acls=False,
        keeps_user_xattrs=False,
        keeps_security_xattrs=False,
        keeps_hard_links=False,
        keeps_sparse=False,
        keeps_symlink_times=False,
        makes_devices=False,
        makes_sockets=False,
    )
    argv = _command(capabilities=nothing).argv
    assert not {b"--acls", b"--xattrs", b"--hard-links", b"--sparse"} & set(argv)
    assert {b"--omit-link-times", b"--no-devices", b"--no-specials"} <= set(argv)


@pytest.mark.parametrize("version", ["3.2.7", "3.5.0"])
def test_real_output_in_any_pieces(version: str) -> None:
    stdout = (_FIXTURES / version / "gone_in_mid_copy.stdout").read_bytes()
    for size in (1, 2, 7, 100, 10_000):
        parser = ProgressParser()
        for start in range(0, len(stdout), size):
            before = parser.counters
            parser.take(stdout[start : start + size])
            assert parser.counters.files >= before.files
            assert parser.counters.size_bytes >= before.size_bytes
        assert parser.counters == StreamCounters(files=2, size_bytes=2_097_160)


@pytest.mark.parametrize(("version", "confine_root"), [("3.2.7", False), ("3.5.0", True)])
def test_features_of_real_ones(version: str, confine_root: bool) -> None:
    features = parse_features(
        (_FIXTURES / version / "version.out").read_bytes(), (_FIXTURES / version / "help.out").read_bytes()
    )
    assert features is not None
    assert features.version_text == version
    assert features.confine_root is confine_root
    assert features.fsync
    assert features.lacks == ()
    assert features.problem() is None


def test_too_old_or_cut_down_ones_are_named() -> None:
    assert "too old" in (RsyncFeatures(version=(3, 1, 3), confine_root=False).problem() or "")
    text = (_FIXTURES / "3.5.0" / "version.out").read_bytes().replace(b" ACLs,", b" no ACLs,").replace(b"ACL-at, ", b"")
    features = parse_features(text, b"")
    assert features is not None
    assert features.lacks == ("ACLs",)
    assert "ACLs" in (features.problem() or "")
