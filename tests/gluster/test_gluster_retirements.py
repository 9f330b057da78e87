"""Who is connected to bricks, and whose connections these are."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from migrator.bricks.retire.model import ClientSeen
from migrator.core.errors import ToolFailed
from migrator.cutover.far_search import address_of, kind_of, local_ends
from migrator.gluster.changes import GlusterRetirements
from migrator.gluster.volume import GlusterCommands
from migrator.hosts.ports import Completed
from tests.hosts.test_gluster_commands import RECORDED, NoWaiting, Recorded

CLIENTS = (RECORDED / "volume-status-clients.xml").read_bytes()


def clients(answer: bytes) -> tuple[ClientSeen, ...]:
    told = Recorded(Completed(exit_code=0, stdout=answer, stderr=b"", timed_out=False))
    commands = GlusterCommands(told, NoWaiting(), volume="vol1")
    found = asyncio.run(GlusterRetirements(commands).clients())
    assert told.asked == [(b"gluster", b"--mode=script", b"--xml", b"volume", b"status", b"vol1", b"clients")]
    return found


def test_every_client_of_every_brick_is_told() -> None:
    assert clients(CLIENTS) == (
        ClientSeen(brick="10.213.98.11:/srv/b1/data", address="10.213.98.10:49148"),
        ClientSeen(brick="10.213.98.12:/srv/b1/data", address="10.213.98.10:49147"),
    )


@pytest.mark.parametrize(
    "answer",
    [
        CLIENTS.replace(b"<clientCount>1</clientCount>", b"<clientCount>2</clientCount>", 1),
        CLIENTS.replace(b"<clientCount>1</clientCount>", b"", 1),
        CLIENTS.replace(b"<hostname>10.213.98.10:49147</hostname>", b"<hostname/>"),
        CLIENTS.replace(b"<volName>vol1", b"<volName>vol2"),
        # What `client-list` prints in the place of it: nodes without any clients.
        CLIENTS.replace(b"clientsStatus", b"other"),
    ],
)
def test_an_answer_that_does_not_tell_all_of_them_is_none(answer: bytes) -> None:
    with pytest.raises(ToolFailed):
        clients(answer)


def test_a_volume_is_stopped_without_force() -> None:
    done = b"<cliOutput><opRet>0</opRet></cliOutput>"
    told = Recorded(Completed(exit_code=0, stdout=done, stderr=b"", timed_out=False))
    asyncio.run(GlusterRetirements(GlusterCommands(told, NoWaiting(), volume="vol1")).stop())
    assert told.asked == [(b"gluster", b"--mode=script", b"--xml", b"volume", b"stop", b"vol1")]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("glusterfs --acl --process-name fuse --volfile-server=gl1 --volfile-id=/vol1 /mnt/gl", "own-mount"),
        ("glusterfs --process-name fuse --volfile-server gl1 --volfile-id vol1 /mnt/gl/", "own-mount"),
        ("glusterfs --process-name fuse --volfile-server=gl1 --volfile-id=/vol1 /mnt/other", None),
        ("glusterfs --process-name fuse --volfile-server=gl1 --volfile-id=/vol2 /mnt/gl", None),
        ("glusterfs -s localhost --volfile-id shd/vol1 -p /run/shd.pid", "gluster"),
        ("glusterfs -s localhost --volfile-id rebalance/vol1 --xlator-option *dht.use-readdirp=no", "gluster"),
        ("glusterfs /mnt/gl", None),
    ],
)
def test_the_mount_of_the_site_and_glusters_own_processes_are_told_by_their_command_lines(
    line: str, kind: str | None
) -> None:
    assert kind_of(line.split(), "vol1", "/mnt/gl") == kind


@pytest.mark.parametrize(
    ("family", "address", "shown"),
    [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "::1")],
)
def test_the_local_end_of_a_connection_is_found_by_its_socket(
    family: socket.AddressFamily, address: str, shown: str
) -> None:
    table = "tcp" if family is socket.AF_INET else "tcp6"
    with socket.socket(family) as listening, socket.socket(family) as client:
        try:
            listening.bind((address, 0))
        except OSError:
            pytest.skip(f"this machine has no {address}")
        listening.listen()
        client.connect(listening.getsockname())
        inode = str(os.fstat(client.fileno()).st_ino)
        ends = local_ends(Path(f"/proc/self/net/{table}").read_text())
        assert ends[inode] == f"{shown}:{client.getsockname()[1]}"
        # One that only listens is nobody's connection.
        assert str(os.fstat(listening.fileno()).st_ino) not in ends


def test_an_ipv4_address_in_ipv6_clothes_is_that_address() -> None:
    mapped = socket.inet_pton(socket.AF_INET6, "::ffff:10.0.0.9")
    words = [int.from_bytes(mapped[at : at + 4], sys.byteorder) for at in range(0, 16, 4)]
    assert address_of("".join(f"{word:08X}" for word in words)) == "10.0.0.9"
