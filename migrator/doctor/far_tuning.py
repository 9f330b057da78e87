"""How this machine is tuned: mount options, disks, memory, network, BeeGFS. Plain Python 3.9, run on each host.

Changes nothing, and touches no file system that it is asked about: mount tables, /proc, /sys and /etc/beegfs have it all.
Reads a question (JSON, paths as latin-1) from standard input: `mounts` are paths of network file systems by role, `disks` of
local ones. Prints a list of facts: where, role, setting, value. A value is null if it cannot be read, and empty if an
option is not set.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

PROC, SYS, ETC = "/proc", "/sys", "/etc/beegfs"
_SYSCTLS = (
    *("vm/swappiness", "vm/dirty_ratio", "vm/dirty_background_ratio", "vm/vfs_cache_pressure", "vm/min_free_kbytes"),
    *("vm/zone_reclaim_mode", "net/ipv4/tcp_sack", "net/ipv4/tcp_timestamps", "net/ipv4/tcp_tw_recycle"),
    *("net/ipv4/tcp_window_scaling", "net/ipv4/tcp_congestion_control", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem"),
)
_GONE = "net/ipv4/tcp_tw_recycle"
"""Linux 4.12 and later lack it."""
_OPTIONS = {
    "xfs": ("nobarrier", "allocsize", "largeio", "swalloc", "inode32", "noatime"),
    "ext4": ("nobarrier", "barrier", "data", "journal_async_commit"),
    "nfs": ("rsize", "wsize", "nconnect", "fsc", "soft", "nolock"),
}
_FUSE = ("attribute-timeout", "entry-timeout", "negative-timeout")
_SETTING = re.compile(r"\s*((?:tune|store|sys|conn|quota)\w*)\s*=\s*(.*?)\s*")
_ETHERNET_10G = 10_000


class SettingRows:
    """The facts found so far."""

    def __init__(self) -> None:
        self.rows: list[list[str | None]] = []

    def add(self, where: str, role: str, key: str, value: str | None) -> None:
        self.rows.append([where, role, key, value])


def text_of(path: str) -> str | None:
    """The content of a small file; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "backslashreplace").strip()
    except OSError:
        return None


def chosen(text: str | None) -> str | None:
    """The value in brackets, as in `none [mq-deadline]`."""
    found = re.search(r"\[([^]]*)\]", text or "")
    return found.group(1) if found else text


def shown(path: str) -> str:
    """A path (latin-1) for people."""
    text = path.encode("latin-1").decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)


class MountLine:
    """A line of the mount table; paths are latin-1."""

    def __init__(self, line: str) -> None:
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        self.device, self.point = words[2], words[4].encode("latin-1").decode("unicode_escape")
        self.filesystem, self.source = after.split(" ")[:2]
        self.options: dict[str, str] = {}
        for option in [*words[5].split(","), *after.rstrip("\n").split(" ")[2].split(",")]:
            name, given, value = option.partition("=")
            self.options[name] = value if given else "yes"


def mount_of(path: str) -> MountLine | None:
    """The mount that a path is on; the last one covers others. None if the table cannot be read."""
    best: MountLine | None = None
    try:
        with open(PROC + "/self/mountinfo", encoding="latin-1", newline="\n") as table:
            for line in table:
                mount = MountLine(line)
                point = mount.point.rstrip("/")
                within = path == point or path.startswith(point + "/")
                if within and (best is None or len(point) >= len(best.point.rstrip("/"))):
                    best = mount
    except OSError:
        return None
    return best


def machine(facts: SettingRows) -> None:
    """Memory and TCP."""
    for name in _SYSCTLS:
        path = PROC + "/sys/" + name
        if name == _GONE and not os.path.exists(path):
            continue
        value = text_of(path)
        key = name.replace("/", ".")
        if name.endswith("mem"):
            key, value = key + ".max", value.split()[-1] if value else value
        facts.add("memory" if name.startswith("vm") else "TCP", "machine", key, value)


def interfaces(facts: SettingRows) -> None:
    """MTU of fast interfaces and of InfiniBand."""
    for path in sorted(map(str, Path(SYS).glob("class/net/*"))):
        name = os.path.basename(path)
        if text_of(path + "/operstate") != "up" or not os.path.exists(path + "/device"):
            continue
        kind, mtu = text_of(path + "/type"), text_of(path + "/mtu")
        if kind == "32":
            facts.add(name, "network", "ipoib.mode", text_of(path + "/mode"))
            facts.add(name, "network", "ipoib.mtu", mtu)
            continue
        speed = text_of(path + "/speed")
        if speed is None or not speed.isdigit():
            facts.add(name, "network", "ethernet.mtu", None)
        elif int(speed) >= _ETHERNET_10G:
            facts.add(name, "network", "ethernet.mtu", mtu)


def local(facts: SettingRows, role: str, path: str) -> None:
    """A local file system, and the disks below it."""
    mount = mount_of(os.path.realpath(path.encode("latin-1")).decode("latin-1"))
    if mount is None:
        facts.add(shown(path), role, "filesystem", None)
        return
    where = shown(mount.point) + " (" + mount.filesystem + ")"
    options(facts, where, role, mount)
    device = os.path.realpath(SYS + "/dev/block/" + mount.device)
    if os.path.exists(device + "/partition"):
        device = os.path.dirname(device)
    if mount.filesystem == "xfs":
        facts.add(where, role, "xfs.stripe", stripe(mount, device))
    if mount.filesystem in ("xfs", "ext4"):
        leaves = disks(device)
        turning = {text_of(one + "/queue/rotational") for one in leaves}
        kind = "disk" if "1" in turning else "flash"
        ahead = text_of(device + "/queue/read_ahead_kb")
        facts.add(where, role, kind + ".read_ahead_kb", ahead if turning and None not in turning else None)
        for one in leaves:
            scheduler = chosen(text_of(one + "/queue/scheduler"))
            facts.add(where + " on " + os.path.basename(one), role, kind + ".scheduler", scheduler)


def disks(device: str) -> list[str]:
    """The disks below a device of LVM, md and the like."""
    try:
        below = sorted(os.listdir(device + "/slaves"))
    except OSError:
        below = []
    if not below:
        parent = os.path.dirname(device)
        return [parent if os.path.exists(device + "/partition") else device]
    found = [disk for name in below for disk in disks(os.path.realpath(device + "/slaves/" + name))]
    return sorted(set(found))


def stripe(mount: MountLine, device: str) -> str | None:
    """Whether the file system's stripes are those of the RAID. None if the device reports none: a controller may hide it."""
    least, best = (text_of(device + "/queue/" + name) for name in ("minimum_io_size", "optimal_io_size"))
    if not (least and best and least.isdigit() and best.isdigit()) or int(best) <= int(least) or int(least) <= 4096:
        return None
    # Options are in sectors of 512 bytes.
    unit, width = (int(mount.options.get(name, "0")) * 512 for name in ("sunit", "swidth"))
    if (unit, width) == (int(least), int(best)):
        return "fits"
    return f"su={unit >> 10}k width={width >> 10}k, the device has {int(least) >> 10}k and {int(best) >> 10}k"


def options(facts: SettingRows, where: str, role: str, mount: MountLine) -> None:
    """The mount options of a known file system."""
    kind = "nfs" if mount.filesystem == "nfs4" else mount.filesystem
    for name in _OPTIONS.get(kind, ()):
        facts.add(where, role, kind + "." + name, mount.options.get(name, ""))


def network(facts: SettingRows, role: str, path: str) -> None:
    """The mount of a network file system."""
    mount = mount_of(path)
    if mount is None:
        facts.add(shown(path), role, "filesystem", None)
        return
    where = shown(mount.point) + " (" + mount.filesystem + ")"
    if mount.filesystem == "fuse.glusterfs":
        words = client(mount.point)
        for name in _FUSE:
            given = [word.partition("=")[2] for word in words or () if word.startswith("--" + name + "=")]
            facts.add(where, role, "fuse." + name, None if words is None else (given or [""])[-1])
    elif mount.filesystem in ("xfs", "ext4"):
        local(facts, role, path)
    else:
        options(facts, where, role, mount)


def client(point: str) -> list[str] | None:
    """The words of the GlusterFS client of a mount point; None if it is not found."""
    for path in Path(PROC).glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("latin-1").rstrip("\0").split("\0")
        except OSError:
            continue
        if os.path.basename(words[0]).startswith("glusterfs") and words[-1] == point:
            return words
    return None


def settings(path: str) -> dict[str, str | None]:
    """`key = value` of a configuration of BeeGFS; one unknown setting if it cannot be read."""
    text = text_of(path)
    if text is None:
        return {"config": None}
    matches = [_SETTING.fullmatch(line) for line in text.split("\n")]
    return {found.group(1): found.group(2) for found in matches if found}


def beegfs(facts: SettingRows) -> None:
    """Clients as they are mounted, servers as they are configured, and the file systems of their targets."""
    for path in sorted(map(str, Path(PROC).glob("fs/beegfs/*/config"))):
        for name, value in settings(path).items():
            facts.add("BeeGFS client " + path.split("/")[-2], "client", "beegfs.client." + name, value)
    for service, directories in (("storage", "storeStorageDirectory"), ("meta", "storeMetaDirectory")):
        for path in sorted(map(str, Path(ETC).glob("**/beegfs-" + service + ".conf"))):
            found = settings(path)
            for name, value in found.items():
                facts.add(path, service, "beegfs." + service + "." + name, value)
            for directory in filter(None, (found.get(directories) or "").split(",")):
                local(facts, service, directory.strip().encode("utf-8", "surrogateescape").decode("latin-1"))


def answer(question: dict[str, Any]) -> list[list[str | None]]:
    """All facts, each once."""
    facts = SettingRows()
    machine(facts)
    interfaces(facts)
    for role, path in question["mounts"]:
        network(facts, role, path)
    for role, path in question["disks"]:
        local(facts, role, path)
    beegfs(facts)
    return list(map(list, dict.fromkeys(map(tuple, facts.rows))))


def main() -> None:
    """Answer the question."""
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
