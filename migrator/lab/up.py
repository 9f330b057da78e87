"""`lab up`: every step is recorded before it is taken; after a failure everything is taken down again."""

import asyncio
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from migrator.core.clock import Clock
from migrator.core.errors import Refused, UsageError
from migrator.core.paths import show
from migrator.core.tasks import in_thread
from migrator.core.units import DAY_S, several
from migrator.hosts.ports import Processes
from migrator.lab import cluster
from migrator.lab.down import aside_name, lab_down, real_path
from migrator.lab.machine import LabTools, all_of, namespace_exists, why_no_cluster
from migrator.lab.model import LabKind, LabPhase, LabSpec, LabState, down_command
from migrator.lab.record import write_record
from migrator.lab.users import Filled, fill, invent_users

# site.toml


_PATH_OVER_SSH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH that sshd gives root."""


def site_document(state: LabState) -> str:
    """The text of site.toml: settings that differ from the defaults, small enough for several batches and chunks."""
    sections: dict[str, dict[str, object]] = {
        "site": {"name": f"lab-{state.spec.name_prefix}", "state_dir": _text(state.state_dir)},
        "source": {"kind": state.spec.kind.value, "mount": _text(state.source)},
        "target": {"kind": "posix", "mount": _text(state.target)},
        "users": {"trees": ["home/*"]},
        "batch": {"max_users": 3},
        "transfer": {"jobs": 4, "chunk_size": "64MiB", "chunk_files": 500, "reserve": "64MiB"},
        "cutover": {"link": f"{_text(links_dir(state))}/{{user}}"},
    }
    if not _processes_readable():
        # As in some containers. Users are moved nevertheless, and a rollback needs a hook that vouches.
        sections["cutover"]["require_rollback"] = False
    if state.spec.kind is LabKind.GLUSTER:
        sections["source"] |= {"volume": state.spec.volume, "via": "auto", "gluster": _text(state.gluster)}
    sections |= host_sections(state, state.target)
    lines = [f"# A lab in {_text(state.spec.directory)!r}; `{down_command(state.spec.directory)}` removes it."]
    return "\n".join([*lines, *section_lines(sections)]) + "\n"


def _processes_readable() -> bool:
    """Whether a search for writers can read the open files of every process of this machine."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                Path("/proc", name, "cwd").readlink()
            except PermissionError:
                return False
            except OSError:
                continue  # it has ended
    return True


def links_dir(state: LabState) -> bytes:
    """The directory of the users' links, like `/home` on a real site."""
    return state.spec.directory + b"/home"


def host_sections(state: LabState, target: bytes) -> Mapping[str, dict[str, object]]:
    """A section of site.toml for every host with sshd, by the section's name; `target` is the target's mount or a
    directory in it, which every host sees at the same path.
    """
    if not state.ssh_config:
        return {}
    own: dict[str, object] = {}
    if shutil.which("python3", path=_PATH_OVER_SSH) is None:
        own = {"python": os.path.realpath(sys.executable)}
    return {
        f'source.hosts."{host.address}"': {
            "ssh": cluster.destination(host),
            "options": ["-F", _text(state.ssh_config)],
            "target": _text(target),
            **own,
        }
        for host in state.hosts
    }


def section_lines(sections: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Sections as lines of TOML."""
    lines: list[str] = []
    for name, keys in sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    return lines


def _text(path: bytes) -> str:
    return os.fsdecode(path)


# The verb


StepDone = Callable[[str], None]


async def lab_up(
    spec: LabSpec,
    processes: Processes,
    clock: Clock,
    *,
    on_step: StepDone = lambda _step: None,
) -> LabState:
    """Build and fill a lab; `on_step` gets every finished step.

    On any error, and on cancellation, everything is taken down again. Raises UsageError for an impossible
    specification, Refused if the directory or the namespaces are taken or this machine cannot have a cluster,
    ToolFailed.
    """
    spec = replace(spec, directory=real_path(spec.directory))
    _check(spec)
    state = _begin(spec, clock)
    try:
        return await _build(state, processes, clock, on_step)
    except BaseException:
        await asyncio.shield(lab_down(spec.directory, processes, clock))
        raise


def _check(spec: LabSpec) -> None:
    if mistakes := spec.mistakes():
        raise UsageError("; ".join(mistakes))
    path = Path(os.fsdecode(spec.directory))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise Refused(
            f"{show(spec.directory)} is there already and not empty",
            cause="a lab is up there, or its `up` was killed",
            hint=f"take it down first (`{down_command(spec.directory)}`), or choose another directory",
        )
    if not path.parent.is_dir():
        raise UsageError(f"{show(spec.directory)} cannot be made: there is no directory above it")
    if spec.kind is LabKind.GLUSTER and (reason := why_no_cluster()):
        raise Refused(
            f"a Gluster cluster cannot run here: {reason}",
            hint="a lab of kind posix (plain directories) runs everywhere",
        )


def _begin(spec: LabSpec, clock: Clock) -> LabState:
    """Make the directory together with its record: it never exists without one."""
    now_s = clock.now_s()
    token = secrets.token_hex(16)
    directory = spec.directory
    has_sshd = spec.kind is LabKind.GLUSTER and spec.ssh and cluster.why_no_sshd(spec) is None
    reference_time_s = spec.reference_time_s if spec.reference_time_s is not None else int(now_s) // DAY_S * DAY_S
    state = LabState(
        spec=spec,
        phase=LabPhase.STARTING,
        token=token,
        created_at_s=now_s,
        reference_time_s=reference_time_s,
        hosts=cluster.planned_hosts(spec) if spec.kind is LabKind.GLUSTER else (),
        bricks=cluster.planned_bricks(spec) if spec.kind is LabKind.GLUSTER else (),
        source=directory + b"/source",
        target=directory + b"/target",
        state_dir=directory + b"/state",
        site_file=directory + b"/site.toml",
        gluster=directory + b"/bin/gluster" if spec.kind is LabKind.GLUSTER else b"",
        ssh_config=directory + b"/ssh/config" if has_sshd else b"",
    )
    if taken := [name for name in state.namespaces if namespace_exists(name)]:
        raise Refused(
            f"the network namespace {taken[0]} is there already",
            cause="another lab has the same name",
            hint="give this lab another directory, or take the other one down",
        )
    aside = Path(os.fsdecode(aside_name(directory, token)))
    aside.mkdir(mode=0o755)
    for name in ("source", "target", "state"):
        (aside / name).mkdir(mode=0o755)
    write_record(state, os.fsencode(aside))
    aside.rename(os.fsdecode(directory))  # also over an empty directory
    return state


async def _build(state: LabState, processes: Processes, clock: Clock, on_step: StepDone) -> LabState:
    if state.spec.kind is LabKind.GLUSTER:
        state = await _build_cluster(state, LabTools(processes, state.token), clock, on_step)
    filled = await _fill(state)
    on_step(f"{several(filled.files, 'file')} of {several(len(filled.trees), 'user')} are made")
    state = replace(
        state,
        phase=LabPhase.UP,
        trees=filled.trees,
        files=filled.files,
        data_bytes=filled.data_bytes,
        notes=(
            *_notes(state.spec),
            *(f"no odd file of kind {kind}: {reason}" for kind, reason in filled.skipped),
        ),
    )
    _write_site(state)
    write_record(state)
    return state


def _write_site(state: LabState) -> None:
    """Write site.toml, and make the links through which users reach their trees, and which a cutover switches."""
    Path(os.fsdecode(state.site_file)).write_text(site_document(state), encoding="utf-8")
    links = Path(os.fsdecode(links_dir(state)))
    links.mkdir(mode=0o755)
    for tree in state.trees:
        name = os.fsdecode(tree.rpartition(b"/")[2])
        (links / name).symlink_to(os.path.join(os.fsdecode(state.source), os.fsdecode(tree)))


def _notes(spec: LabSpec) -> list[str]:
    notes = [] if os.geteuid() == 0 else ["without root every file belongs to the user who started the lab"]
    if spec.kind is LabKind.GLUSTER and spec.ssh and (reason := cluster.why_no_sshd(spec)) is not None:
        notes.append(f"the hosts run no sshd, so site.toml has no host that reads its own bricks: {reason}")
    return notes


async def _build_cluster(state: LabState, tools: LabTools, clock: Clock, done: StepDone) -> LabState:
    await cluster.make_network(state, tools)
    hosts = [replace(host, holder_pid=await cluster.start_holder(state, host, tools)) for host in state.hosts]
    state = replace(state, hosts=tuple(hosts))
    write_record(state)
    cluster.write_scripts(state)
    done(f"{several(len(hosts), 'host is', 'hosts are')} up")
    await all_of(
        (
            cluster.mount_target(state, tools),
            *(cluster.make_brick(state, brick, tools) for brick in state.bricks),
            *(cluster.start_glusterd(host, tools, clock) for host in state.hosts),
            cluster.start_all(state, tools),
        )
    )
    used = len(cluster.volume_bricks(state))
    spare = f" ({several(len(state.bricks) - used, 'spare one')})" if used < len(state.bricks) else ""
    done(f"{several(used, 'brick')}{spare} and the management daemons are up")
    await cluster.make_pool(state, tools, clock)
    done("the pool is whole")
    await cluster.make_volume(state, tools, clock)
    done(f"volume {state.spec.volume} has started")
    await cluster.mount_source(state, tools, clock)
    done("the volume is mounted")
    return state


async def _fill(state: LabState) -> Filled:
    """Fill the source in a thread; cancellation waits for it, so that nothing is written afterwards."""
    users = invent_users(state.spec, state.reference_time_s)
    return await in_thread(partial(fill, state.source, state.spec, state.reference_time_s, users))
