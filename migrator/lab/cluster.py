"""A Gluster cluster in network namespaces, with an sshd on each host."""

import os
import pwd
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from migrator.core.clock import Clock
from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.lab.machine import LabTools, all_of, mounts_beneath, until
from migrator.lab.model import LabBrick, LabHost, LabSpec, LabState, VolumeType, down_command

# The sshd of each host, and what ssh needs to reach it: keys, known hosts, a configuration
#
# All of it is in the lab's directory; root's own files (`~/.ssh`, `/etc/ssh`) are neither read nor changed.


PROGRAMS = ("sshd", "ssh", "ssh-keygen")

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+=@-")
_PID_FILE = "/run/sshd.pid"
_PRIVILEGE_SEPARATION = "/run/sshd"
_DIALER = Path(__file__).with_name("ssh_dialer.py")


def why_no_sshd(spec: LabSpec) -> str | None:
    """Why the hosts of a lab can run no sshd; None if they can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if not _PLAIN.issuperset(spec.directory):
        return f"the name of its directory holds characters that ssh's configuration cannot ({show(spec.directory)})"
    return None


def destination(host: LabHost) -> str:
    """A host in ssh's notation."""
    return f"root@{host.address}"


def authorized_keys(state: LabState, host: LabHost) -> Path:
    """The file with the only public key that a host accepts."""
    return _home(state, host) / "authorized_keys"


def host_key(state: LabState, host: LabHost) -> Path:
    """The private key of a host; the public one is beside it, with `.pub`."""
    return _home(state, host) / "host_key"


async def start_all(state: LabState, tools: LabTools) -> None:
    """Keys, configuration and daemons of all hosts; nothing for a lab without ssh."""
    if not state.ssh_config:
        return
    common = Path(os.fsdecode(state.ssh_config)).parent
    common.mkdir()
    for host in state.hosts:
        _home(state, host).mkdir()
    keys = [common / "key", *(host_key(state, host) for host in state.hosts)]
    options = ("-q", "-t", "ed25519", "-N", "")
    await all_of(tools.run("ssh-keygen", *options, "-C", key.name, "-f", str(key)) for key in keys)
    _write_ssh_files(state, common)
    await all_of(start_sshd(state, host, tools) for host in state.hosts)


def _write_ssh_files(state: LabState, common: Path) -> None:
    (common / "dial.py").write_bytes(_DIALER.read_bytes())
    (common / "config").write_text(_client_config(state, common), encoding="ascii")
    known_hosts = ""
    public = (common / "key.pub").read_text(encoding="ascii")
    for host in state.hosts:
        kind, key, *_ = host_key(state, host).with_suffix(".pub").read_text(encoding="ascii").split()
        known_hosts += f"{host.address} {kind} {key}\n"
        authorized_keys(state, host).write_text(public, encoding="ascii")
        (_home(state, host) / "sshd_config").write_text(_server_config(state, host), encoding="ascii")
        Path(f"/proc/{host.holder_pid}/root{_PRIVILEGE_SEPARATION}").mkdir(mode=0o755)
    (common / "known_hosts").write_text(known_hosts, encoding="ascii")


async def start_sshd(state: LabState, host: LabHost, tools: LabTools) -> None:
    """Start the daemon of a host with its current key, and wait until it listens."""
    home = _home(state, host)
    # By its full path, because it executes itself for every connection.
    sshd = os.path.realpath(shutil.which("sshd") or "/usr/sbin/sshd")  # noqa: ASYNC240
    await tools.on_host(host, sshd, "-f", str(home / "sshd_config"), "-E", str(home / "sshd.log"))


def _home(state: LabState, host: LabHost) -> Path:
    return Path(os.fsdecode(state.spec.directory)) / "hosts" / str(host.number) / "ssh"


_NOT_THE_FIRST_SHELL = 2
"""bash does not read .bashrc at a higher shell level: root's own file is not for the lab's hosts."""


def _server_config(state: LabState, host: LabHost) -> str:
    return f"""\
ListenAddress {host.address}:22
PidFile {_PID_FILE}
HostKey {host_key(state, host)}
AuthorizedKeysFile {authorized_keys(state, host)}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM {"yes" if _root_is_locked() else "no"}
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 200
MaxSessions 200
SetEnv SHLVL={_NOT_THE_FIRST_SHELL}
"""


def _root_is_locked() -> bool:
    """Whether an exclamation mark locks root's password: without PAM, sshd then refuses root, also with a key."""
    try:
        with open("/etc/shadow", "rb") as file:
            fields = [line.split(b":") for line in file]
    except OSError:
        return False
    root = os.fsencode(pwd.getpwuid(0).pw_name)
    return any(entry[0] == root and entry[1].startswith(b"!") for entry in fields if len(entry) > 1)


def _client_config(state: LabState, common: Path) -> str:
    """One connection at a time, with the lab's keys and known hosts, in the network of the lab's client. Uses the
    cheapest key exchange: this machine computes both sides of it for every host.
    """
    nsenter = shutil.which("nsenter") or "/usr/bin/nsenter"
    namespace = f"--net=/run/netns/{state.client_namespace}"
    dial = shlex.join(
        [nsenter, namespace, "--", os.path.realpath(sys.executable), "-IS", str(common / "dial.py"), "%h", "%p"]
    )
    return f"""\
Host *
    ProxyCommand {dial}
    ProxyUseFdpass yes
    IdentityFile {common}/key
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {common}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
    KexAlgorithms curve25519-sha256
    ControlMaster no
    ControlPath none
    BatchMode yes
"""


# The cluster: network, hosts, bricks, pool, volume, mount; one function for each step
#
# Every host has a network namespace on a bridge, and mount and UTS namespaces with a private `/run`, `/srv`,
# `/var/lib/glusterd` and `/var/log/glusterfs`. Its bricks are XFS on loop devices, mounted only inside; the target is
# mounted there too. The client of the mount has a network namespace; its mount is visible to the whole machine.


_GLUSTER = ("gluster", "--mode=script")
_START_DEADLINE_S = 60.0
_HOLDER_SCRIPT = str(Path(__file__).with_name("holder.py"))
_GROUPS = Path("/var/lib/glusterd/groups")
_PYTHON = os.path.realpath(sys.executable)
_ALL_BRICKS = (VolumeType.DISTRIBUTE, VolumeType.DISTRIBUTED_REPLICATE, VolumeType.DISTRIBUTED_ARBITER)
_NEEDED_BY_HOSTS = (b"/usr", b"/bin", b"/sbin", b"/lib", b"/lib64", b"/etc", b"/var/lib", b"/var/log", b"/run", b"/srv")


def planned_hosts(spec: LabSpec) -> tuple[LabHost, ...]:
    """The hosts of a lab before it is built."""
    return tuple(
        LabHost(
            number=number,
            namespace=f"{spec.name_prefix}-{number}",
            address=f"10.213.{spec.network_octet}.{10 + number}",
        )
        for number in range(1, spec.hosts + 1)
    )


def planned_bricks(spec: LabSpec) -> tuple[LabBrick, ...]:
    """The bricks of a lab in the volume's order: brick 1 of every host, then brick 2, ..."""
    return tuple(
        LabBrick(
            host=host.number,
            number=number,
            name=f"{host.address}:{brick_path(number)}",
            image=b"%s/hosts/%d/brick%d.img" % (spec.directory, host.number, number),
        )
        for number in range(1, spec.bricks_per_host + 1)
        for host in planned_hosts(spec)
    )


def brick_path(number: int) -> str:
    """The path of a brick on its host."""
    return f"/srv/b{number}/data"


async def make_network(state: LabState, tools: LabTools) -> None:
    """Make the network namespaces, and a bridge between them."""
    for name in state.namespaces:
        await tools.run("ip", "netns", "add", name)
    ends = {state.client_namespace: f"10.213.{state.spec.network_octet}.10"}
    ends.update({host.namespace: host.address for host in state.hosts})
    lines = ["link add br0 type bridge", "link set br0 up"]
    for name in ends:
        lines += [f"link add v{name} type veth peer name eth0 netns {name}", f"link set v{name} master br0 up"]
    await tools.run("ip", "-n", state.hub_namespace, "-batch", "-", stdin="\n".join(lines).encode())
    for name, address in ends.items():
        lines = ["link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up"]
        await tools.run("ip", "-n", name, "-batch", "-", stdin="\n".join(lines).encode())


async def start_holder(state: LabState, host: LabHost, tools: LabTools) -> int:
    """Make the namespaces of a host, and start the process that keeps them; returns its pid."""
    home = _make_home(state, host)
    sleep = shutil.which("sleep") or "/usr/bin/sleep"
    needed = (*_NEEDED_BY_HOSTS, state.spec.directory, os.fsencode(_PYTHON), os.fsencode(_HOLDER_SCRIPT))
    answer = await tools.run(
        *("nsenter", f"--net=/run/netns/{host.namespace}", "--"),
        *("unshare", "--mount", "--uts", "--propagation", "private", "--"),
        *(_PYTHON, "-IS", _HOLDER_SCRIPT, host.namespace, sleep, str(home / "lib"), str(home / "log"), *needed),
    )
    return int(answer)


def _make_home(state: LabState, host: LabHost) -> Path:
    """The directory of a host: glusterd's files, its logs, and the images of the bricks."""
    home = Path(os.fsdecode(state.spec.directory)) / "hosts" / str(host.number)
    (home / "lib" / "hooks").mkdir(parents=True)
    (home / "log").mkdir()
    if _GROUPS.is_dir():
        shutil.copytree(_GROUPS, home / "lib" / "groups")
    return home


async def make_brick(state: LabState, brick: LabBrick, tools: LabTools) -> None:
    """A brick: a sparse image, XFS with the inode size that Gluster requires, mounted inside its host."""
    host = state.hosts[brick.host - 1]
    await make_xfs_image(brick.image, state.spec.brick_size_bytes, tools)
    # mount frees its loop device with the last mount, so it always ends with the host.
    point = f"/srv/b{brick.number}"
    _make_inside(host, point)
    await tools.on_host(host, "mount", "-t", "xfs", "-o", "loop", brick.image, point)
    _make_inside(host, f"{point}/data")


def _make_inside(host: LabHost, path: str) -> None:
    """Make a directory that only the host sees."""
    Path(f"/proc/{host.holder_pid}/root{path}").mkdir()


async def make_xfs_image(image: bytes, size_bytes: int, tools: LabTools) -> None:
    """A sparse file with an empty XFS."""
    await tools.run("truncate", "-s", str(size_bytes), image)
    await tools.run("mkfs.xfs", "-q", "-K", "-i", "size=512", image)


async def start_glusterd(host: LabHost, tools: LabTools, clock: Clock) -> None:
    """Start the management daemon of a host, and wait until it answers."""
    await tools.on_host(host, "glusterd", "--pid-file=/run/glusterd.pid", "--log-file=/var/log/glusterfs/glusterd.log")

    async def answers() -> str | None:
        completed = await tools.attempt_on_host(host, *_GLUSTER, "pool", "list")
        return None if completed.exit_code == 0 else f"glusterd of host {host.number} does not answer"

    await until(answers, clock=clock, deadline_s=_START_DEADLINE_S)


async def make_pool(state: LabState, tools: LabTools, clock: Clock) -> None:
    """Peer the hosts with each other."""
    first, *others = state.hosts
    for host in others:
        await tools.on_host(first, *_GLUSTER, "peer", "probe", host.address)
    await wait_for_pool(state, tools, clock)


async def wait_for_pool(state: LabState, tools: LabTools, clock: Clock) -> None:
    """Wait until every host reports all others as connected."""
    others = len(state.hosts) - 1

    async def connected_from(host: LabHost) -> str | None:
        answer = await tools.on_host(host, *_GLUSTER, "--xml", "peer", "status")
        count = min(answer.count(b"<connected>1</connected>"), answer.count(b"<state>3</state>"))
        return None if count == others else f"host {host.number} sees {count} of {others} peers"

    for host in state.hosts:
        await until(lambda host=host: connected_from(host), clock=clock, deadline_s=_START_DEADLINE_S)  # type: ignore[misc]


async def make_volume(state: LabState, tools: LabTools, clock: Clock) -> None:
    """Create and start the volume, and wait until all its bricks are up."""
    first, spec = state.hosts[0], state.spec
    bricks = volume_bricks(state)
    await tools.on_host(first, *_GLUSTER, "volume", "create", spec.volume, *_LAYOUTS[spec.volume_type], *bricks)
    await tools.on_host(first, *_GLUSTER, "volume", "start", spec.volume)
    await wait_for_bricks(state, tools, clock)


def volume_bricks(state: LabState) -> tuple[str, ...]:
    """The bricks of the volume; the others are spares."""
    return tuple(brick.name for brick in state.bricks if brick.number == 1 or state.spec.volume_type in _ALL_BRICKS)


async def wait_for_bricks(state: LabState, tools: LabTools, clock: Clock) -> None:
    """Wait until Gluster reports all bricks of the volume as up."""
    count = len(volume_bricks(state))
    command = (*_GLUSTER, "--xml", "volume", "status", state.spec.volume, "detail")

    async def up() -> str | None:
        answer = (await tools.attempt_on_host(state.hosts[0], *command)).stdout
        up_count = answer.count(b"<status>1</status>")
        return None if up_count >= count else f"{up_count} of {count} bricks are up"

    await until(up, clock=clock, deadline_s=_START_DEADLINE_S)


_LAYOUTS: Mapping[VolumeType, tuple[str, ...]] = {
    VolumeType.DISTRIBUTE: (),
    VolumeType.REPLICA3: ("replica", "3"),
    VolumeType.DISTRIBUTED_REPLICATE: ("replica", "3"),
    VolumeType.ARBITER: ("replica", "2", "arbiter", "1"),
    VolumeType.DISTRIBUTED_ARBITER: ("replica", "2", "arbiter", "1"),
    VolumeType.DISPERSE: ("disperse", "3", "redundancy", "1"),
}


async def mount_source(state: LabState, tools: LabTools, clock: Clock) -> None:
    """Mount the volume with ACLs, visible to the whole machine, without a cache of names (docs/cutover.md), and wait
    until the client is connected to every brick.
    """
    options = f"acl,entry-timeout=0,log-file={os.fsdecode(state.spec.directory)}/client.log"
    argv = (
        *("nsenter", f"--net=/run/netns/{state.client_namespace}", "--"),
        *("mount", "-t", "glusterfs", "-o", options, f"{state.hosts[0].address}:/{state.spec.volume}", state.source),
    )
    await tools.run(*argv)
    await wait_for_client(state, clock)


async def wait_for_client(state: LabState, clock: Clock) -> None:
    """Wait until the mount is connected to every brick: before that it shows fewer files, and no error."""
    count = len(volume_bricks(state))

    async def reached() -> str | None:
        reached_count = sum(_client_connected(state, number) for number in range(count))
        if reached_count < count:
            return f"the mount has reached {reached_count} of {count} bricks"
        return None if _subvolumes_up(state) else "the mount does not use every subvolume yet"

    await until(reached, clock=clock, deadline_s=_START_DEADLINE_S)


def _client_connected(state: LabState, number: int) -> bool:
    """The state of one connection to a brick in the client's virtual directory `.meta`."""
    name = f"{state.spec.volume}-client-{number}"
    try:
        with open(f"{os.fsdecode(state.source)}/.meta/graphs/active/{name}/private", "rb") as file:
            return b"connected = 1" in file.read()
    except OSError:
        return False


def _subvolumes_up(state: LabState) -> bool:
    """Whether the client's DHT uses every subvolume: shortly after the connections it does not, and a `mkdir` fails with EIO."""
    try:
        with open(f"{os.fsdecode(state.source)}/.meta/graphs/active/{state.spec.volume}-dht/private", "rb") as file:
            return b"subvolume_status" in (shown := file.read()) and not re.search(
                rb"subvolume_status\[\d+\] = 0", shown
            )
    except OSError:
        return False


async def mount_target(state: LabState, tools: LabTools) -> None:
    """The file system to migrate to: XFS on a loop device."""
    image = state.spec.directory + b"/target.img"
    await make_xfs_image(image, state.spec.target_size_bytes, tools)
    await tools.run("mount", "-t", "xfs", "-o", "loop", image, state.target)
    for host in state.hosts:
        await mount_target_on(state, host, tools)


async def mount_target_on(state: LabState, host: LabHost, tools: LabTools) -> None:
    """Mount the target on a host too, at the same path. Raises ToolFailed if it is not mounted here."""
    mounted = [mount for mount in mounts_beneath(state.target) if mount.point == state.target]
    if not mounted:
        raise ToolFailed(f"{show(state.target)} is not mounted", hint=f"see `{down_command(state.spec.directory)}`")
    # Mount the same device; mounting the image again could create another loop device.
    await tools.on_host(host, "mount", "-t", "xfs", mounted[0].source, state.target)


def write_scripts(state: LabState) -> None:
    """Write the hooks of bricks, and `bin/gluster`, which runs on the first host, for `[source] gluster` of
    site.toml.
    """
    _write_script(Path(os.fsdecode(state.gluster)), "gluster_wrapper.py")
    for hook in ("pre-wipe.d/50-make-file-system", "pre-attach.d/50-give-to-target"):
        _write_script(Path(os.fsdecode(state.spec.directory)) / "hooks" / hook, "brick_hook.py")


def _write_script(path: Path, module: str) -> None:
    shebang = b"#!%s -IS\n" % os.fsencode(_PYTHON)
    if len(shebang) > 255:  # BINPRM_BUF_SIZE of the kernel
        raise ToolFailed("the path of the Python interpreter is too long for a script's first line")
    path.parent.mkdir(parents=True)
    path.write_bytes(shebang + Path(__file__).with_name(module).read_bytes())
    path.chmod(0o755)
