"""`doctor --tuning`: what is read of a host, and which settings are findings."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from migrator.core.errors import ExitCode
from migrator.doctor import far_tuning
from migrator.doctor.model import TuningReport, TuningSetting
from migrator.doctor.tuning import ADVICE, Advice, evaluate, volume_settings
from migrator.doctor.view import tuning_document
from migrator.render.text import to_markdown
from tests.support.run_site import RealSite
from tests.support.volumes import volume
from tests.support.xfs import XfsMount

MOUNTS = r"""
21 1 253:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,barrier=0,data=writeback
30 21 9:127 / /srv/b\0401 rw,relatime shared:2 - xfs /dev/md127 rw,attr2,nobarrier,inode32,sunit=128,swidth=1024,noquota
31 21 8:16 / /data rw,noatime shared:3 - xfs /dev/sdb rw,attr2,inode64,allocsize=131072k,logbsize=256k,noquota
32 21 0:50 / /mnt/gl rw,relatime shared:4 - fuse.glusterfs gl1:/gl rw,user_id=0,group_id=0,allow_other
33 21 0:51 / /mnt/nfs rw,relatime shared:5 - nfs4 nas:/home rw,vers=4.2,rsize=32768,wsize=1048576,soft,proto=tcp,nconnect=1
34 21 0:52 / /mnt/beegfs rw,relatime shared:6 - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf
""".lstrip()
FILES = {
    "proc/self/mountinfo": MOUNTS,
    "proc/4711/cmdline": "/usr/sbin/glusterfs\0--attribute-timeout=60\0--volfile-server=gl1\0/mnt/gl\0",
    "proc/sys/vm/swappiness": "0",
    "proc/sys/vm/dirty_ratio": "80",
    "proc/sys/vm/dirty_background_ratio": "10",
    "proc/sys/vm/vfs_cache_pressure": "0",
    "proc/sys/vm/min_free_kbytes": "67584",
    "proc/sys/vm/zone_reclaim_mode": "1",
    "proc/sys/net/ipv4/tcp_sack": "0",
    "proc/sys/net/ipv4/tcp_tw_recycle": "1",
    "proc/sys/net/ipv4/tcp_timestamps": "0",
    "proc/sys/net/ipv4/tcp_window_scaling": "1",
    "proc/sys/net/ipv4/tcp_congestion_control": "reno",
    "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456",
    "proc/fs/beegfs/1-ABC-node1/config": "cfgFile = /etc/beegfs/beegfs-client.conf\ntuneRemoteFSync = 0\n"
    "tuneFileCacheType = native\nconnMaxInternodeNum = 12\n",
    "etc/beegfs/beegfs-storage.conf": "# comments\nstoreStorageDirectory        = /data/target\n"
    "storeAllowFirstRunInit = true\ntuneNumWorkers=8\n",
    "etc/beegfs/a.d/beegfs-meta.conf": "storeAllowFirstRunInit = false\nstoreMetaDirectory =\n",
    "sys/dev/block/9:127/queue/minimum_io_size": "262144",
    "sys/dev/block/9:127/queue/optimal_io_size": "2097152",
    "sys/dev/block/9:127/queue/read_ahead_kb": "128",
    "sys/dev/block/9:127/queue/rotational": "1",
    "sys/dev/block/9:127/queue/scheduler": "none",
    "sys/dev/block/8:16/queue/minimum_io_size": "512",
    "sys/dev/block/8:16/queue/optimal_io_size": "0",
    "sys/dev/block/8:16/queue/read_ahead_kb": "4096",
    "sys/dev/block/8:16/queue/rotational": "0",
    "sys/dev/block/8:16/queue/scheduler": "[bfq] mq-deadline none",
    "sys/class/net/eth0/operstate": "up",
    "sys/class/net/eth0/type": "1",
    "sys/class/net/eth0/mtu": "1500",
    "sys/class/net/eth0/speed": "25000",
    "sys/class/net/eth0/device/vendor": "",
    "sys/class/net/ib0/operstate": "up",
    "sys/class/net/ib0/type": "32",
    "sys/class/net/ib0/mtu": "2044",
    "sys/class/net/ib0/mode": "datagram",
    "sys/class/net/ib0/device/vendor": "",
    "sys/class/net/lo/operstate": "unknown",
}
"""A host with every mistake of old guides; the forms are those of Linux 6.8, GlusterFS 10.3 and BeeGFS 7.4."""
QUESTION = {
    "mounts": [("source", "/mnt/gl"), ("target", "/mnt/beegfs"), ("target", "/mnt/nfs/x")],
    "disks": [("brick", "/srv/b 1/data"), ("state", "/var/lib/migrator")],
}
UNKNOWN = {"net.ipv4.tcp_wmem.max", "disk.read_ahead_kb", "flash.read_ahead_kb", "flash.scheduler", "xfs.stripe"}


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuningReport:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("PROC", "SYS"):
        monkeypatch.setattr(far_tuning, name, str(tmp_path / name.lower()))
    monkeypatch.setattr(far_tuning, "ETC", str(tmp_path / "etc/beegfs"))
    rows = far_tuning.answer(QUESTION)
    facts = [
        TuningSetting(host="gl1", where=where or "", role=role or "", key=key or "", value=value)
        for where, role, key, value in rows
    ]
    state = volume(
        options=(
            ("cluster.lookup-unhashed", "off"),
            ("performance.parallel-readdir", "on"),
            ("network.ping-timeout", "5"),
            ("performance.cache-size", "6GB"),
            ("performance.readdir-ahead", "off"),
        )
    )
    return evaluate([*facts, *volume_settings(state)], ["gl2 is not examined: no answer"])


DANGEROUS = {
    "xfs.nobarrier": "yes",
    "ext4.barrier": "0",
    "ext4.data": "writeback",
    "vm.swappiness": "0",
    "vm.vfs_cache_pressure": "0",
    "net.ipv4.tcp_sack": "0",
    "net.ipv4.tcp_tw_recycle": "1",
    "net.ipv4.tcp_timestamps": "0",
    "gluster.cluster.lookup-unhashed": "off",
    "gluster.performance.parallel-readdir": "on",
    "gluster.network.ping-timeout": "5",
    "fuse.attribute-timeout": "60",
    "nfs.soft": "yes",
    "beegfs.client.tuneRemoteFSync": "0",
    "beegfs.storage.storeAllowFirstRunInit": "true",
}


def test_old_advice_that_is_dangerous_today_is_recognized(report: TuningReport) -> None:
    assert {one.key: one.value for one in report.findings if one.dangerous} == DANGEROUS
    places = {one.key: one.places for one in report.findings}
    assert places["xfs.nobarrier"] == ("gl1: /srv/b 1 (xfs)",)
    assert places["nfs.soft"] == ("gl1: /mnt/nfs (nfs4)",)
    assert places["ext4.data"] == ("gl1: / (ext4)",)


def test_other_settings_are_advice_and_what_cannot_be_read_is_none(report: TuningReport) -> None:
    found = {one.key: one.value for one in report.findings if not one.dangerous}
    assert found == {
        "xfs.inode32": "yes",
        "xfs.stripe": "su=64k width=512k, the device has 256k and 2048k",
        "xfs.largeio": "",
        "xfs.swalloc": "",
        "xfs.noatime": "",
        "disk.scheduler": "none",
        "disk.read_ahead_kb": "128",
        "flash.scheduler": "bfq",
        "vm.dirty_ratio": "80",
        "vm.zone_reclaim_mode": "1",
        "net.ipv4.tcp_congestion_control": "reno",
        "ethernet.mtu": "1500",
        "ipoib.mode": "datagram",
        "gluster.performance.readdir-ahead": "off",
        "gluster.performance.open-behind": "on",
        "gluster.performance.cache-size": "6GB",
        "nfs.rsize": "32768",
        "fuse.entry-timeout": "",
        "nfs.nconnect": "1",
        "beegfs.client.tuneFileCacheType": "native",
        "beegfs.storage.tuneNumWorkers": "8",
    }
    unknown = [one.rpartition(": ")[2] for one in report.unknown]
    assert set(unknown) <= UNKNOWN
    assert {"net.ipv4.tcp_wmem.max", "xfs.stripe"} <= set(unknown)
    text = to_markdown(tuning_document(report))
    assert (
        f"15 dangerous settings, 21 with other advice; {report.compared} settings compared, {len(unknown)} unknown"
        in text
    )
    assert "gl2 is not examined" in text


def test_every_condition_can_be_met_and_few_defaults_are_findings() -> None:
    def found(advice: Advice, value: str) -> bool:
        fact = TuningSetting(
            host="h", where="w", role=advice.on[0] if advice.on else "any", key=advice.key, value=value
        )
        return bool(evaluate([fact], advice=[advice]).findings)

    for one in ADVICE:
        met = [*one.equals, *(["other"] if one.unless else [])]
        met += [] if one.below is None else [str(one.below - 1)]
        met += [] if one.above is None else [str(one.above + 1)]
        assert met, one.key
        assert all(found(one, value) for value in met), one.key
        assert not any(found(one, value) for value in one.unless), one.key
    assert [one.key for one in ADVICE if one.default and found(one, one.default)] == ["gluster.performance.open-behind"]


@pytest.mark.needs_root
def test_of_this_machine_it_changes_nothing_and_never_fails(
    scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount
) -> None:
    site = RealSite(scratch / "site", xfs_source, xfs_target)
    site.write()

    def seen() -> Mapping[str, int]:
        return {os.path.join(above, name): 0 for above, _, names in os.walk(scratch / "site") for name in names}

    before = seen()
    done = site.migrator("doctor", "--tuning", "--json")
    assert done.returncode == ExitCode.DONE, done.stderr
    found = json.loads(done.stdout)
    assert found["compared"] > 10
    assert found["problems"] == []
    assert seen() == before
