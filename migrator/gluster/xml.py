"""The output of `gluster --xml` as values. Pure."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from migrator.core.errors import ToolFailed
from migrator.gluster import model
from migrator.gluster.model import BrickRoom

# The state of the volume.
#
# Only `opRet` proves that a command succeeded: failures had the exit codes 0, 1, 2 and 234 (GlusterFS 10.3).


_RETRY_SIGNS = ("Another transaction is in progress", "Locking failed on")
_QUOTA_DISABLED = "Quota is disabled"
_STARTED = "1"
_ONLINE = "1"
_IN_CLUSTER = "3"


class GlusterBusy(ToolFailed):
    """Another command held the cluster's lock: retry."""


class GlusterFailed(ToolFailed):
    """Gluster reports a failure; the message is its own."""


def parse_answer(stdout: bytes, stderr: bytes = b"") -> ET.Element:
    """The root element of a successful answer. Raises GlusterBusy, GlusterFailed, ToolFailed."""
    if b"<!DOCTYPE" in stdout or b"<!ENTITY" in stdout:
        raise ToolFailed("gluster's answer holds a document type, which it never does")
    try:
        answer = ET.fromstring(stdout)  # noqa: S314 -- no DTD, see above
    except ET.ParseError:
        printed = " ".join((stdout.strip() or stderr.strip()).decode("utf-8", "backslashreplace").split())
        raise ToolFailed(
            f"gluster did not answer in XML: {printed[:300] or 'it printed nothing'}",
            cause="glusterd is not running on this host, or the command is no gluster",
            hint="start glusterd here, or set [source] gluster to a command that asks a host where it runs",
        ) from None
    if answer.findtext("opRet") != "0":
        printed = " ".join((answer.findtext("opErrstr") or answer.findtext("output") or "no reason given").split())
        if any(sign in printed for sign in _RETRY_SIGNS):
            raise GlusterBusy(f"gluster is busy: {printed}")
        raise GlusterFailed(f"gluster failed: {printed}")
    return answer


def parse_volume_info(answer: ET.Element, volume: str) -> model.VolumeState:
    """`volume info`: the bricks without their status. Raises ToolFailed if the volume is not listed."""
    for element in answer.iterfind("volInfo/volumes/volume"):
        if element.findtext("name") == volume:
            return model.VolumeState(
                volume=volume,
                volume_id=element.findtext("id") or "",
                type=element.findtext("typeStr") or "",
                started=element.findtext("status") == _STARTED,
                bricks=tuple(_brick(brick) for brick in element.iterfind("bricks/brick")),
                options=tuple(
                    sorted(
                        (option.findtext("name") or "", option.findtext("value") or "")
                        for option in element.iterfind("options/option")
                    )
                ),
                tasks=(),
                # 0 and 1 both mean: not of this kind. A value that is not a number must not be treated as one of them.
                replica_count=_count(element, "replicaCount", absent=1),
                disperse_count=_count(element, "disperseCount", absent=0),
                stripe_count=_count(element, "stripeCount", absent=1),
            )
    raise ToolFailed(f"gluster's answer does not describe volume {volume!r}")


def parse_online(answer: ET.Element, volume: str) -> dict[str, bool]:
    """`volume status VOL detail`: whether each brick is up, by brick name, without bricks of hosts that are down."""
    return {node_name(node): node.findtext("status") == _ONLINE for node in of_volume(answer, volume, "node")}


def parse_quotas(answer: ET.Element) -> tuple[tuple[bytes, int], ...]:
    """`volume quota VOL list`: directories, relative to the root, with their hard limits in bytes."""
    quotas: list[tuple[bytes, int]] = []
    for limit in answer.iterfind("volQuota/limit"):
        path, hard_limit = limit.findtext("path") or "", limit.findtext("hard_limit") or ""
        if hard_limit.isdigit():
            quotas.append((path.encode("utf-8", "surrogateescape").strip(b"/"), int(hard_limit)))
    return tuple(quotas)


def is_quota_disabled(error: GlusterFailed) -> bool:
    """True if `quota list` failed only because quotas are off."""
    return _QUOTA_DISABLED in error.message


def parse_heals(answer: ET.Element) -> tuple[model.BrickHeal, ...]:
    """Parse `volume heal VOL info summary`. A brick that is down has a status of several words, and no counts."""
    heals: list[model.BrickHeal] = []
    for element in answer.iterfind("healInfo/bricks/brick"):
        entries = element.findtext("totalNumberOfEntries") or ""
        heals.append(
            model.BrickHeal(
                brick=element.findtext("name") or "",
                status=" ".join((element.findtext("status") or "unknown").split()),
                entries=int(entries) if entries.isascii() and entries.isdigit() else None,
            )
        )
    return tuple(heals)


def parse_peers_down(answer: ET.Element) -> tuple[str, ...]:
    """`pool list`: the hosts whose glusterd does not respond, or that are not fully in the pool."""
    return tuple(
        peer.findtext("hostname") or "a host without a name"
        for peer in answer.iterfind("peerStatus/peer")
        # The host that answers has no state of its own in the list.
        if peer.findtext("connected") != "1" or peer.findtext("state", _IN_CLUSTER) != _IN_CLUSTER
    )


def with_status(state: model.VolumeState, answer: ET.Element) -> tuple[model.VolumeState, tuple[model.VolumeTask, ...]]:
    """`volume status VOL`: the volume with its status, and every listed task. The state of a brick that is not listed
    stays unknown.
    """
    online, tasks = parse_online(answer, state.volume), parse_volume_tasks(answer, state.volume)
    whole = replace(
        state,
        bricks=tuple(replace(brick, online=online.get(brick.name)) for brick in state.bricks),
        tasks=tuple(task.text for task in tasks if task.unfinished),
        task_ids=tuple(task.id for task in tasks),
    )
    return whole, tasks


def of_volume(answer: ET.Element, volume: str, path: str) -> Iterator[ET.Element]:
    """The elements at a path below the status of a volume."""
    for element in answer.iterfind("volStatus/volumes/volume"):
        if element.findtext("volName") == volume:
            yield from element.iterfind(path)


def node_name(node: ET.Element) -> str:
    """The name of a brick in the status of its volume."""
    return f"{node.findtext('hostname')}:{node.findtext('path')}"


def _count(element: ET.Element, name: str, *, absent: int) -> int:
    text = element.findtext(name)
    if text is None:
        return absent
    if not (text.isascii() and text.isdigit()):
        raise ToolFailed(f"gluster's answer has {text[:40]!r} for {name}")
    return int(text)


def _brick(element: ET.Element) -> model.Brick:
    name = element.findtext("name") or ""
    host, _, path = name.partition(":/")
    return model.Brick(
        name=name,
        host=host,
        path=b"/" + path.encode("utf-8", "surrogateescape"),
        online=None,
        arbiter=element.findtext("isArbiter") == "1",
    )


# Room and tasks: the detailed status, the tasks of a volume, the counters of one.


_NOT_STARTED_SIGN = re.compile("(?:remove-brick|rebalance) not started", re.IGNORECASE)
_KINDS = {"Remove brick": model.TaskKind.REMOVE_BRICK, "Rebalance": model.TaskKind.REBALANCE}
_FIX_LAYOUT_OFFSET = 4
"""The states of a fix-layout are numbered four above those of other tasks (5 to 8)."""

_STATUSES = {
    "0": model.TaskStatus.NOT_STARTED,
    "1": model.TaskStatus.IN_PROGRESS,
    "2": model.TaskStatus.STOPPED,
    "3": model.TaskStatus.COMPLETED,
    "4": model.TaskStatus.FAILED,
}
_FIX_LAYOUT = {str(int(number) + _FIX_LAYOUT_OFFSET): status for number, status in _STATUSES.items() if number != "0"}


def parse_rooms(answer: ET.Element, volume: str) -> dict[str, BrickRoom]:
    """Parse `volume status VOL detail`: the file system of each brick, by brick name. Values that are not reported for
    a brick that is down are None. Bricks of hosts whose glusterd is down are left out. Bricks on one device of a
    host each have an equal part of its room, so that sums are right, as in statfs(2) of the mount.
    """
    rooms = {
        node_name(node): BrickRoom(
            device=_text_of(node, "device"),
            filesystem=_text_of(node, "fsName"),
            total_bytes=_number(node, "sizeTotal"),
            free_bytes=_number(node, "sizeFree"),
            total_inodes=_number(node, "inodesTotal"),
            free_inodes=_number(node, "inodesFree"),
        )
        for node in of_volume(answer, volume, "node")
    }
    sharing = Counter(_disk_of(name, room) for name, room in rooms.items())
    return {name: room.part_of(sharing[_disk_of(name, room)]) if room.device else room for name, room in rooms.items()}


def _disk_of(brick: str, room: BrickRoom) -> tuple[str, str | None]:
    return brick.partition(":/")[0], room.device


def parse_volume_tasks(answer: ET.Element, volume: str) -> tuple[model.VolumeTask, ...]:
    """`volume status VOL [tasks]`: every listed task, ended ones too."""
    return tuple(
        model.VolumeTask(
            kind=_KINDS.get(task.findtext("type") or "", model.TaskKind.OTHER),
            name=task.findtext("type") or "unknown task",
            id=task.findtext("id") or "",
            status=_status(task)[0],
            bricks=tuple(brick.text or "" for brick in task.iterfind("params/brick")),
        )
        for task in of_volume(answer, volume, "tasks/task")
    )


def parse_progress(answer: ET.Element) -> model.TaskProgress:
    """Parse `remove-brick ... status` and `stop`, `rebalance VOL status` and `stop`: the counters by host. The
    aggregate is left out: it is `not started` if the only host that knows the task does not answer. Raises
    ToolFailed for an answer without a task, and for counters that are no numbers.
    """
    for name in ("volRemoveBrick", "volRebalance"):
        element = answer.find(name)
        task_id = None if element is None else element.findtext("task-id")
        if element is not None and task_id:
            return model.TaskProgress(
                task_id=task_id, counters=tuple(_counters(node) for node in element.iterfind("node"))
            )
    raise ToolFailed("gluster's answer names no task")


def parse_task_id(answer: ET.Element) -> str:
    """`remove-brick ... start` and `rebalance VOL ... start`: the id of the new task. Raises ToolFailed."""
    found = answer.findtext("volRemoveBrick/task-id") or answer.findtext("volRebalance/task-id")
    if not found:
        raise ToolFailed("gluster's answer names no task")
    return found


def is_not_started(error: GlusterFailed) -> bool:
    """True if a command failed because there is no such task: it was committed or stopped, or never started."""
    return _NOT_STARTED_SIGN.search(error.message) is not None


def _counters(node: ET.Element) -> model.TaskCounters:
    status, fix_layout = _status(node)
    return model.TaskCounters(
        host=node.findtext("nodeName") or "",
        host_id=node.findtext("id") or "",
        files=_counter(node, "files"),
        size_bytes=_counter(node, "size"),
        lookups=_counter(node, "lookups"),
        failures=_counter(node, "failures"),
        skipped=_counter(node, "skipped"),
        status=status,
        fix_layout=fix_layout,
        runtime_s=_seconds(node),
    )


def _status(element: ET.Element) -> tuple[model.TaskStatus, bool]:
    number = element.findtext("status") or ""
    if number in _FIX_LAYOUT:
        return _FIX_LAYOUT[number], True
    return _STATUSES.get(number, model.TaskStatus.UNKNOWN), False


def _text_of(node: ET.Element, name: str) -> str | None:
    text = node.findtext(name)
    return None if text in (None, "", "N/A") else text


def _number(node: ET.Element, name: str) -> int | None:
    text = node.findtext(name) or ""
    return int(text) if text.isascii() and text.isdigit() else None


def _counter(node: ET.Element, name: str) -> int:
    found = _number(node, name)
    if found is None:
        # An unreadable counter of failures must not count as zero.
        raise ToolFailed(f"gluster's answer has {(node.findtext(name) or 'nothing')[:40]!r} for {name}")
    return found


def _seconds(node: ET.Element) -> float:
    try:
        return max(float(node.findtext("runtime") or ""), 0.0)
    except ValueError:
        return 0.0
