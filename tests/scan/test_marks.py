"""A client that cannot be made to forget the content of a marked file is a problem of that file."""

from pathlib import Path

from migrator.scan.marks import forget_marked


def test_a_file_that_the_client_may_keep_is_a_problem_and_one_that_is_gone_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "directory").mkdir()
    found = forget_marked(bytes(tmp_path), [b"directory", b"file", b"gone"])
    assert [(one.path, one.operation) for one in found] == [(b"file", "forget")]
    assert (tmp_path / "file").read_text() == "content"
