"""The sample hooks around `brick add` do what they say, with an ssh that goes nowhere and mounts that are only written down."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.test_hook_samples import HOOKS, document

MAKE = "pre-add.d/20-make-file-system"
BEEGFS = {7: "pre-add.d/50-beegfs7-storage-target", 8: "pre-add.d/55-beegfs8-storage-target"}

STUBS = {
    "ssh": '[ "$1 $2" = "-o BatchMode=yes" ] && echo "ssh $3" >>"$CALLS" && exec sh -c "$4"',
    "mount": 'echo "mount $*" >>"$CALLS"',
    "mountpoint": '[ -e "$MOUNTED" ]',
    "findmnt": '[ "$2" != --source ] && [ -e "$MOUNTED" ] && cat "$MOUNTED"',
    "systemctl": 'echo "systemctl $*" >>"$CALLS"',
}


@dataclass(frozen=True)
class Place:
    """A site's directory, and what the hooks reach from there."""

    directory: Path

    @property
    def mounted(self) -> Path:
        return self.directory / "mounted"

    @property
    def device(self) -> Path:
        return self.directory / "device"

    @property
    def point(self) -> Path:
        return self.directory / "b2"

    def calls(self) -> list[str]:
        file = self.directory / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def run(self, hook: str, brick: str, side: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(HOOKS / hook)],
            input=json.dumps(document() | {"stage": "pre-add", "event": "pre", "brick": brick, "side": side}),
            capture_output=True,
            text=True,
            check=False,
            env={
                "PATH": f"{self.directory}/bin:{os.environ['PATH']}:/usr/sbin:/sbin",
                "MIGRATOR_SITE": str(self.directory / "site.toml"),
                "MIGRATOR_BRICK": brick,
                "MIGRATOR_SIDE": side,
                "CALLS": str(self.directory / "calls"),
                "MOUNTED": str(self.mounted),
                "FSTAB": str(self.directory / "fstab"),
            },
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "bin").mkdir()
    for name, text in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "fstab").touch()
    made = Place(tmp_path)
    with made.device.open("wb") as file:
        file.truncate(400 << 20)
    conf = f"gl3:/srv/b2/data {made.device} {made.point} su=64k sw=8 agcount=5\n"
    (tmp_path / "bricks.conf").write_text(f"gl3:/srv/b2/data2 /dev/other /srv/other\n{conf}")
    return made


@pytest.mark.skipif(shutil.which("mkfs.xfs", path="/usr/sbin:/sbin:/usr/bin") is None, reason="needs mkfs.xfs")
def test_a_file_system_with_the_options_of_the_field(place: Place) -> None:
    done = place.run(MAKE, "gl3:/srv/b2/data", "source")
    assert done.returncode == 0, done.stderr
    assert place.calls() == ["ssh root@gl3", f"mount -t xfs -o noatime,inode64 {place.device} {place.point}"]
    assert (place.directory / "fstab").read_text() == f"{place.device} {place.point} xfs noatime,inode64 0 0\n"
    info = subprocess.run(
        ["xfs_db", "-r", "-c", "sb 0", "-c", "p agcount inodesize unit width", str(place.device)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
    ).stdout
    assert info.split("\n")[:4] == ["agcount = 5", "inodesize = 512", "unit = 16", "width = 128"]

    # It is mounted now: called again, it leaves it as it is, as long as nothing lies there.
    place.mounted.write_text(str(place.device))
    again = place.run(MAKE, "gl3:/srv/b2/data", "source")
    assert (again.returncode, again.stdout) == (0, f"{place.point} is mounted, and empty\n")
    (place.point / "home").mkdir()
    refused = place.run(MAKE, "gl3:/srv/b2/data", "source")
    assert refused.returncode == 1
    assert "is in use" in refused.stderr


@pytest.mark.skipif(shutil.which("mkfs.xfs", path="/usr/sbin:/sbin:/usr/bin") is None, reason="needs mkfs.xfs")
def test_what_has_a_signature_is_overwritten_only_by_name(place: Place) -> None:
    assert place.run(MAKE, "gl3:/srv/b2/data", "source").returncode == 0
    content = place.device.read_bytes()
    refused = place.run(MAKE, "gl3:/srv/b2/data", "source")
    assert refused.returncode == 1
    assert "overwrite.conf does not name it" in refused.stderr
    (place.directory / "overwrite.conf").write_text(f"gl4 {place.device}\n")
    assert place.run(MAKE, "gl3:/srv/b2/data", "source").returncode == 1
    assert place.device.read_bytes() == content
    (place.directory / "overwrite.conf").write_text(f"gl3 {place.device}\n")
    assert place.run(MAKE, "gl3:/srv/b2/data", "target").returncode == 0
    assert place.device.read_bytes() != content
    assert "largeio" in place.calls()[-1]


@pytest.mark.parametrize("version", [7, 8])
def test_a_storage_target_is_set_up_once(place: Place, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The program of BeeGFS lies at a fixed place: the ssh that goes nowhere finds it here.
    setup = place.directory / "beegfs-setup-storage"
    setup.write_text('#!/bin/sh\necho "setup $*" >>"$CALLS"\nmkdir -p "$2" && touch "$2/targetNumID"\n')
    setup.chmod(0o755)
    text = STUBS["ssh"].replace(
        'sh -c "$4"',
        f'sh -c "$(echo "$4" | sed "s|/opt/beegfs/sbin|{place.directory}|;s|/etc/beegfs|{place.directory}|")"',
    )
    (place.directory / "bin" / "ssh").write_text(f"#!/bin/sh\n{text}\n")
    (place.directory / "conn.auth").write_text("secret")
    place.point.mkdir()
    brick = f"gl3:{place.point}/data"
    (place.directory / "beegfs-targets.conf").write_text(f"{brick} {place.point} 3 302 mgmt01\n")
    hook = BEEGFS[version]

    assert place.run(hook, brick, "source").returncode == 0
    assert place.calls() == []
    unmounted = place.run(hook, brick, "target")
    assert unmounted.returncode == 1
    assert "no file system is mounted" in unmounted.stderr
    place.mounted.write_text("x")
    done = place.run(hook, brick, "target")
    assert done.returncode == 0, done.stderr
    assert f"{brick} is storage target 302 of node 3" in done.stdout
    again = place.run(hook, brick, "target")
    assert again.returncode == 0
    assert "set up already" in again.stdout
    kept = [call for call in place.calls() if not call.startswith("ssh")]
    setup_call = f"setup -p {place.point}/beegfs_storage -s 3 -i 302 -m mgmt01"
    assert kept == [setup_call, "systemctl restart beegfs-storage", "systemctl restart beegfs-storage"]
    unknown = place.run(hook, "gl3:/srv/b9", "target")
    assert unknown.returncode == 1
    assert "does not tell" in unknown.stderr
    if version == 8:
        (place.directory / "conn.auth").unlink()
        assert "conn.auth is missing" in place.run(hook, brick, "target").stderr
