"""What `status --watch` refuses before it looks at anything."""

import pytest
from click.testing import CliRunner

from migrator.cli.main import main
from migrator.core.errors import ExitCode


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--interval", "10ms"), "too short"),
        (("--interval", "2"), "no unit"),
        (("--interval", "soon"), "soon"),
        (("--json",), "--watch excludes --json"),
    ],
)
def test_is_refused(options: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(main, ["--site", "/nowhere/site.toml", "status", "--watch", *options])
    assert done.exit_code == ExitCode.USAGE
    assert says in done.output
