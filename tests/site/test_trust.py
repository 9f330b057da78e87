"""Who may change what this program believes: site.toml, the directories and the programs that it names."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.core.errors import Refused, UsageError
from migrator.site.load import load_site

OTHER_USER = 4711


@pytest.fixture
def site(scratch: Path) -> Path:
    directory = scratch / "site"
    (directory / "state").mkdir(parents=True)
    tool = directory / "tool"
    tool.touch(mode=0o755)
    file = directory / "site.toml"
    file.write_text(
        f'[site]\nname = "a"\n[source]\nkind = "gluster"\nvolume = "v"\nmount = "/mnt/gl"\ngluster = "{tool}"\n'
        '[target]\nkind = "posix"\nmount = "/mnt/t"\n[users]\ntrees = ["home/*"]\n'
    )
    return file


def give_away(path: Path) -> None:
    os.chown(path, OTHER_USER, 0)


def open_up(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def lead_elsewhere(path: Path) -> None:
    """Through a symlink of another user."""
    path.rename(path.with_name("real"))
    path.symlink_to("real")
    os.lchown(path, OTHER_USER, 0)


@pytest.mark.needs_root
@pytest.mark.guarantee("trusted-files")
@pytest.mark.parametrize("change", [give_away, open_up, lead_elsewhere])
@pytest.mark.parametrize("name", ["site.toml", "state", "tool", ""])
def test_what_other_users_can_change_is_refused(site: Path, name: str, change: Callable[[Path], None]) -> None:
    assert load_site(site).site.name == "a"
    path = site.parent / name if name else site.parent
    change(path)
    with pytest.raises(Refused, match=f"is not used: .*{path.name}") as refused:
        load_site(site)
    assert path.name in refused.value.hint


@pytest.mark.parametrize("kind", ["fifo", "device", "large", "nested", "number"])
def test_what_is_no_site_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "site.toml"
    match kind:
        case "fifo":
            os.mkfifo(file)
        case "device":
            file = Path("/dev/zero")
        case "large":
            file.write_bytes(b"#" * (1 << 21))
        case "nested":
            file.write_text("a = " + "[" * 100_000)
        case _:
            file.write_text("a = " + "9" * 5_000)
    with pytest.raises(UsageError, match=r"no site file|nested too deeply|a number that is too long"):
        load_site(file)
