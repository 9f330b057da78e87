"""What `gluster --xml` tells of rooms and tasks: the status in detail, the tasks of a volume, the counters of one. Pure."""

import re
import xml.etree.ElementTree as ET

from migrator.adapters.filesystems.gluster_xml import GlusterFailed
from migrator.domain.brick_list import BrickRoom
from migrator.domain.errors import ToolFailed
from migrator.domain.volume_tasks import TaskCounters, TaskKind, TaskProgress, TaskStatus, VolumeTask

_NOT_STARTED_SIGN = re.compile("(?:remove-brick|rebalance) not started", re.IGNORECASE)
_KINDS = {"Remove brick": TaskKind.REMOVE_BRICK, "Rebalance": TaskKind.REBALANCE}
_FIX_LAYOUT_OFFSET = 4
"""The states of a fix-layout are numbered four above those of other tasks (5 to 8)."""

_STATUSES = {
    "0": TaskStatus.NOT_STARTED,
    "1": TaskStatus.IN_PROGRESS,
    "2": TaskStatus.STOPPED,
    "3": TaskStatus.COMPLETED,
    "4": TaskStatus.FAILED,
}
_FIX_LAYOUT = {str(int(number) + _FIX_LAYOUT_OFFSET): status for number, status in _STATUSES.items() if number != "0"}


def parse_rooms(answer: ET.Element, volume: str) -> dict[str, BrickRoom]:
    """`volume status VOL detail`: by brick name its file system; what is not told of one that is down is None. Bricks of
    hosts whose glusterd is down are not in it.
    """
    return {
        f"{node.findtext('hostname')}:{node.findtext('path')}": BrickRoom(
            device=_told(node, "device"),
            filesystem=_told(node, "fsName"),
            mount_options=_told(node, "mntOptions"),
            total_bytes=_number(node, "sizeTotal"),
            free_bytes=_number(node, "sizeFree"),
            total_inodes=_number(node, "inodesTotal"),
            free_inodes=_number(node, "inodesFree"),
        )
        for element in answer.iterfind("volStatus/volumes/volume")
        if element.findtext("volName") == volume
        for node in element.iterfind("node")
    }


def parse_volume_tasks(answer: ET.Element, volume: str) -> tuple[VolumeTask, ...]:
    """`volume status VOL [tasks]`: every task that is listed, ended ones too."""
    return tuple(
        VolumeTask(
            kind=_KINDS.get(task.findtext("type") or "", TaskKind.OTHER),
            name=task.findtext("type") or "unknown task",
            id=task.findtext("id") or "",
            status=_status(task)[0],
            bricks=tuple(brick.text or "" for brick in task.iterfind("params/brick")),
        )
        for element in answer.iterfind("volStatus/volumes/volume")
        if element.findtext("volName") == volume
        for task in element.iterfind("tasks/task")
    )


def parse_progress(answer: ET.Element) -> TaskProgress:
    """`remove-brick ... status` and `stop`, `rebalance VOL status` and `stop`: the counters by host. The aggregate is left
    out: it says `not started` where the only host that knows does not answer. Raises ToolFailed for an answer that has
    no task, and for counters that are no numbers.
    """
    for name in ("volRemoveBrick", "volRebalance"):
        element = answer.find(name)
        task_id = None if element is None else element.findtext("task-id")
        if element is not None and task_id:
            return TaskProgress(task_id=task_id, counters=tuple(_counters(node) for node in element.iterfind("node")))
    raise ToolFailed("gluster's answer names no task")


def parse_task_id(answer: ET.Element) -> str:
    """`remove-brick ... start` and `rebalance VOL ... start`: the id of the task that was begun. Raises ToolFailed."""
    found = answer.findtext("volRemoveBrick/task-id") or answer.findtext("volRebalance/task-id")
    if not found:
        raise ToolFailed("gluster's answer names no task")
    return found


def is_not_started(error: GlusterFailed) -> bool:
    """Whether a command failed because there is no such task (any more): it was committed or stopped, or never begun."""
    return _NOT_STARTED_SIGN.search(error.message) is not None


def _counters(node: ET.Element) -> TaskCounters:
    status, fix_layout = _status(node)
    return TaskCounters(
        host=node.findtext("nodeName") or "",
        host_id=node.findtext("id") or "",
        files=_count(node, "files"),
        size_bytes=_count(node, "size"),
        lookups=_count(node, "lookups"),
        failures=_count(node, "failures"),
        skipped=_count(node, "skipped"),
        status=status,
        fix_layout=fix_layout,
        runtime_s=_seconds(node),
    )


def _status(element: ET.Element) -> tuple[TaskStatus, bool]:
    number = element.findtext("status") or ""
    if number in _FIX_LAYOUT:
        return _FIX_LAYOUT[number], True
    return _STATUSES.get(number, TaskStatus.UNKNOWN), False


def _told(node: ET.Element, name: str) -> str | None:
    text = node.findtext(name)
    return None if text in (None, "", "N/A") else text


def _number(node: ET.Element, name: str) -> int | None:
    text = node.findtext(name) or ""
    return int(text) if text.isascii() and text.isdigit() else None


def _count(node: ET.Element, name: str) -> int:
    found = _number(node, name)
    if found is None:
        # A counter of failures that cannot be read must not pass for none.
        raise ToolFailed(f"gluster's answer has {(node.findtext(name) or 'nothing')[:40]!r} for {name}")
    return found


def _seconds(node: ET.Element) -> float:
    try:
        return max(float(node.findtext("runtime") or ""), 0.0)
    except ValueError:
        return 0.0
