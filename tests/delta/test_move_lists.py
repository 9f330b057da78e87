"""What move lists on disk do."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from migrator.core.entry import EntryType
from migrator.core.errors import Refused, UsageError
from migrator.delta.model import Gone, Rename
from migrator.delta.store import MoveListFiles

HOSTILE = (b"-rf", b"new\nline", b"\xff\xfe", b"a" * 255, b"quo'te", b"/".join([b"d" * 250] * 30))
NAME = "batch-0001-delta-0001"


@pytest.fixture
def lists(tmp_path: Path) -> MoveListFiles:
    return MoveListFiles(tmp_path / "state" / "moves")


@pytest.fixture(autouse=True)
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def rename(number: int, name: bytes = b"x") -> Rename:
    return Rename(
        tree=b"t\xff",
        old=b"t\xff/%d" % number + name,
        new=b"t\xff/new/%d" % number + name,
        type=list(EntryType)[number % len(EntryType)],
        size_bytes=number * 2**40,
        mtime_ns=number - 2**62,
    )


def gone(number: int, name: bytes = b"x") -> Gone:
    kind = list(EntryType)[number % len(EntryType)]
    return Gone(tree=b"t\xff", path=b"t\xff/%d" % number + name, type=kind, names=number + 1)


def test_what_is_written_is_read_back_in_order(lists: MoveListFiles) -> None:
    renames = [rename(number, name) for number, name in enumerate(HOSTILE)]
    vanished = [gone(number, name) for number, name in enumerate(HOSTILE)]
    written = lists.write(NAME, iter(renames), iter(vanished))
    assert (written.renames, written.gone) == (len(HOSTILE), len(HOSTILE))
    assert list(lists.renames(written.move_list)) == renames
    assert list(lists.gone(written.move_list)) == vanished
    assert lists.digest(written.move_list) == written.digest


@pytest.mark.parametrize("damage", ["missing", "cut", "bytes", "other columns"])
def test_a_damaged_list_is_refused(lists: MoveListFiles, state: Path, damage: str) -> None:
    written = lists.write(NAME, map(rename, range(5000)), map(gone, range(5000)))
    file = state / "moves" / written.move_list
    content = file.read_bytes()
    place = len(content) // 4
    if damage == "missing":
        file.unlink()
    elif damage == "other columns":
        pq.write_table(pq.read_table(file).drop_columns(["names"]), file)
    else:
        file.write_bytes(content[:place] + (b"" if damage == "cut" else b"\x55" * 400 + content[place + 400 :]))
    with pytest.raises(Refused):
        list(lists.gone(written.move_list))
    if damage != "missing":
        assert lists.digest(written.move_list) != written.digest


@pytest.mark.parametrize("name", ["", "../x", "a/b", "/etc/x", ".hidden", "a" * 200])
def test_names_that_lead_elsewhere_are_refused(lists: MoveListFiles, name: str) -> None:
    with pytest.raises(UsageError):
        lists.write(name, [], [])
    with pytest.raises(Refused, match="cannot be a move list"):
        list(lists.renames(name))
