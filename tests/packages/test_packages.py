"""The packages: installed, used, upgraded and removed in a bare Debian 12 without a network."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import migrator
from tools import packages
from tools.locks import PROGRAM, locked

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs_root]

KEPT = ("etc/migrator/", "var/lib/migrator/", "srv/")
"""Configuration, state and data belong to the operator."""
OF_DPKG = ("var/lib/dpkg/", "var/log/", "var/cache/", "tmp/")
IN_ROOT = 'mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && chroot "$0" "$@"; exit $?'
OF_NETWORK = ("etc/resolv.conf", "etc/hosts", "etc/apt", "etc/ssl/certs")
"""How this machine reaches its Debian mirror; copied, for installations write there."""
SITE = "/etc/migrator/site.toml"
METRICS = "/tmp/metrics.prom"
UPGRADE_DURING_A_COMMAND = f"""
migrator --site {SITE} metrics --textfile {METRICS} --interval 1s &
until [ -e {METRICS} ]; do sleep 0.1; done
dpkg --install "$1"
code=$?
kill $!
wait $!
exit $code
"""


@dataclass(frozen=True)
class Built:
    """The packages of two builds; the second has another commit."""

    wheel: Path
    tree: Path
    first: Path
    second: Path
    rpm: Path | None


OWN = packages.find_machines()[0]
ARM = next(machine for machine in packages.MACHINES if machine.debian == "arm64")
QEMU = "/usr/bin/qemu-aarch64-static"
MACHINE_OF_ELF = slice(18, 20)
ON_ARM = rf"""
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf %s ':arm:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:{QEMU}:OPCF' \
    > /proc/sys/fs/binfmt_misc/register
export QEMU_LD_PREFIX=$1
python=$1/usr/bin/{packages.PYTHON}
program="import sys; sys.path.insert(0, '$1/{packages.ENVIRONMENT / packages.LIBRARIES}'); from migrator.__main__ import program; program()"
shift
for verb in "$@"; do "$python" -I -B -c "$program" $verb; done
"""
"""In namespaces of their own, which forget the interpreter: each word is a verb with its options."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    if missing := [name for name in ("dpkg-deb", "gcc") if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    dist = tmp_path_factory.mktemp("dist")
    wheel = packages.build_wheel(packages.build_sdist(dist), dist, OWN)
    tree = dist / "tree"
    tree.mkdir()
    packages.make_tree(wheel, tree, OWN)
    first = packages.build_deb(tree, dist, OWN, revision=1, level=1)
    rpm = packages.build_rpm(tree, dist, OWN, revision=1, level=1) if shutil.which("rpmbuild") else None
    (commit,) = tree.rglob("site-packages/migrator/commit")
    commit.write_text("second")
    yield Built(wheel, tree, first, packages.build_deb(tree, dist, OWN, revision=2, level=1), rpm)
    shutil.rmtree(dist)


class Machine:
    """A bare Debian 12 in a directory; programs run there as root, without a network and with their own processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def call(self, *argv: str, network: bool = False) -> "subprocess.CompletedProcess[str]":
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"])]
        return subprocess.run(
            [*namespaces, "sh", "-c", IN_ROOT, str(self.root), *argv],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )

    def works(self, *argv: str, network: bool = False) -> str:
        done = self.call(*argv, network=network)
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout

    def migrate(self, *words: str) -> str:
        return self.works("migrator", "--site", SITE, *words)

    def take(self, package: Path) -> str:
        """Copy a package there, and return its path."""
        shutil.copy(package, self.root / "tmp")
        return f"/tmp/{package.name}"

    def files(self) -> set[str]:
        """All files and directories but the records of dpkg."""
        found = {str(path.relative_to(self.root)) for path in self.root.rglob("*")}
        return {path for path in found if not path.startswith(OF_DPKG)}


def debian(root: Path, *options: str) -> Iterator[Machine]:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap")
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", *options, "bookworm", str(root)], check=True)
    yield Machine(root)
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    yield from debian(tmp_path_factory.mktemp("debian") / "root", "--include=python3")


@pytest.fixture
def bare_machine(tmp_path: Path) -> Iterator[Machine]:
    """Without Python, too; it can reach the Debian mirror."""
    for bare in debian(tmp_path / "root"):
        for name in OF_NETWORK:
            place = bare.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if Path("/", name).is_dir():
                shutil.copytree(Path("/", name), place, dirs_exist_ok=True)
            else:
                shutil.copyfile(Path("/", name), place)
        yield bare


def test_a_machine_is_migrated_by_the_package_and_upgraded_meanwhile(built: Built, machine: Machine) -> None:
    before = machine.files()
    first, second = machine.take(built.first), machine.take(built.second)
    machine.works("dpkg", "--install", first)
    assert machine.works("dpkg", "--verify", "migrator") == ""
    assert list((machine.root / "etc/migrator").iterdir()) == []
    assert machine.works("migrator", "--version").startswith(f"migrator, version {migrator.__version__}")

    home = machine.root / "srv/old/home"
    for user in ("alice", "bob"):
        (home / user).mkdir(parents=True)
        (home / user / "letter").write_text(f"of {user}")
    (machine.root / "srv/new").mkdir()
    mounts = ("--source-mount", "/srv/old", "--target-mount", "/srv/new")
    machine.migrate("init", *mounts, "--trees", "home/*", "--state-dir", "/var/lib/migrator")
    machine.migrate("plan")
    machine.migrate("run", "--all")

    # The second build finds the ledger with the run; not while a command runs.
    refused = machine.call("sh", "-c", UPGRADE_DURING_A_COMMAND, "sh", second)
    assert refused.returncode != 0
    assert machine.works("dpkg-query", "--show", "--showformat=${Version} ${Status}", "migrator") == (
        f"{migrator.__version__}-1 install ok installed"
    )
    machine.works("dpkg", "--install", second)
    assert machine.works("migrator", "--version").strip().endswith("(commit second)")
    (verified,) = json.loads(machine.migrate("verify", "--all", "--json"))
    assert (verified["whole"], verified["differences"]) == (True, {})
    assert json.loads(machine.migrate("report", "--json"))
    assert (machine.root / "srv/new/home/bob/letter").read_text() == "of bob"

    state = machine.files() - before
    machine.works("dpkg", "--purge", "migrator")
    left = machine.files() - before
    assert left == {path for path in state if f"{path}/".startswith(KEPT)}
    assert "etc/migrator/site.toml" in left


def commands_of(page: str, section: str) -> list[str]:
    text = (packages.ROOT / page).read_text(encoding="utf-8").partition(f"## {section}")[2].partition("\n## ")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def test_the_readme_can_be_tried_by_copy_and_paste(built: Built, bare_machine: Machine) -> None:
    commands = commands_of("README.md", "Try it")
    assert len(commands) <= 6
    home = bare_machine.root / "root"
    shutil.copy(built.first, home)
    script = "cd /root\nset -e\n" + "\n".join(commands)
    bare_machine.works("bash", "-c", script, network=True)
    old, new = home / "trial/old/home", home / "trial/new/home"
    copied = {path.relative_to(new) for path in new.rglob("*")}
    assert copied == {path.relative_to(old) for path in old.rglob("*")}
    assert len(copied) > 1000
    (old / "bob/hostname").write_text("changed")
    bare_machine.works("bash", "-c", "cd /root/trial\nset -e\n" + "\n".join(commands[-2:]))
    assert (new / "bob/hostname").read_text() == "changed"
    report = json.loads(bare_machine.works("bash", "-c", "cd /root/trial && migrator report --json"))
    assert report

    further = commands_of("docs/getting-started.md", "The trial to its end")
    (confirming,) = (number for number, command in enumerate(further) if "CHECKSUM" in command)
    shown = bare_machine.works("bash", "-c", "cd /root/trial\nset -e\n" + "\n".join(further[:confirming]))
    (checksum,) = re.findall(r"--confirm ([0-9a-f]+)", shown)
    last = "\n".join(further[confirming:]).replace("CHECKSUM", checksum)
    bare_machine.works("bash", "-c", "cd /root/trial\nset -e\n" + last)
    assert (home / "trial/users/alice").readlink() == Path("/root/trial/new/home/alice")
    assert list(old.iterdir()) == []
    assert (new / "bob/hostname").read_text() == "changed"


def test_the_package_needs_neither_pip_nor_a_compiler_nor_paths_of_the_build(built: Built) -> None:
    names = {path.name for path in built.tree.rglob("*")}
    assert not names & {"pip", "playwright", "mypy", "pytest"}
    build = os.fsencode(packages.ROOT), os.fsencode(built.tree)
    for path in built.tree.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            assert [place for place in build if place in content] == [], path


def test_the_components_are_those_of_the_tree(built: Built, tmp_path: Path) -> None:
    document = json.loads(packages.write_components(built.tree, tmp_path, OWN).read_text())
    listed = {
        (each["name"], each["version"]) for each in document["components"] if each["purl"].startswith("pkg:pypi/")
    }
    assert listed == {(name, version) for name, (version, _) in locked(packages.ROOT / PROGRAM).items()}


def test_the_copyright_file_names_every_library_and_every_text_is_there(built: Built) -> None:
    text = (built.tree / packages.MANUAL / "copyright").read_text()
    for name in locked(packages.ROOT / PROGRAM):
        assert f"authors of {name}," in text.lower().replace("_", "-")
    texts = re.findall(r"^ /(usr/lib/migrator/\S+)$", text, re.MULTILINE)
    assert len(texts) >= len(locked(packages.ROOT / PROGRAM))
    assert [place for place in texts if not (built.tree / place).exists()] == []
    assert re.search(r"site-packages/ClusterShell\*\n(?: .*\n)*Copyright: .*\nLicense: LGPL-2.1-or-later\n", text)


def test_whoever_builds_answers_for_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEBEMAIL", raising=False)
    assert packages.maintainer().startswith("unknown ")
    monkeypatch.setenv("DEBFULLNAME", "Name of the builder")
    monkeypatch.setenv("DEBEMAIL", "builder@site.example")
    assert packages.maintainer() == "Name of the builder <builder@site.example>"


def test_links_in_the_installed_manual_lead_somewhere(built: Built) -> None:
    manual = built.tree / packages.MANUAL
    for file in (
        "docs/guarantees.md",
        "docs/samples/site.toml",
        "hooks/post-report.d/50-mail-report",
        "README.md",
        "LICENSE",
        "html/index.html",
    ):
        assert (manual / file).is_file()
    assert os.access(manual / "hooks/post-report.d/50-mail-report", os.X_OK)


def test_shells_complete_verbs(built: Built, machine: Machine) -> None:
    scripts = {shell: built.tree / places[0] for shell, places in packages.COMPLETIONS.items()}
    assert all(script.stat().st_size for script in scripts.values())
    assert subprocess.run(["bash", "-n", scripts["bash"]], check=False).returncode == 0
    machine.works("dpkg", "--install", machine.take(built.first))
    question = ["env", "COMP_WORDS=migrator brick dr", "COMP_CWORD=2", "_MIGRATOR_COMPLETE=bash_complete"]
    assert machine.works(*question, "migrator") == "plain,drain\n"
    machine.works("dpkg", "--purge", "migrator")


@pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="needs rpmbuild")
def test_the_rpm_has_the_same_files_scripts_and_needs(built: Built) -> None:
    assert built.rpm is not None

    def ask(option: str) -> str:
        argv = ["rpm", "-qp", option, str(built.rpm)]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    files = {path for path in ask("--list").splitlines() if not path.endswith("/etc/migrator")}
    made = {f"/{path.relative_to(built.tree)}" for path in built.tree.rglob("*")} - {"/etc/migrator"}
    folders = {f"/{folder.relative_to(built.tree)}" for folder in built.tree.rglob("*") if folder.is_dir()}
    assert files <= made
    assert made - files <= folders
    assert f"/usr/bin/{packages.PYTHON}" in ask("--requires").splitlines()
    scripts = ask("--scripts")
    assert [
        kind for kind in ("preinstall", "preuninstall", "postinstall", "postuninstall") if kind not in scripts
    ] == []
    assert platform.machine() in built.rpm.name


def test_checksums_are_those_of_the_packages(built: Built, tmp_path: Path) -> None:
    packages.write_checksums(tmp_path, [built.wheel, built.first])
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    wanted = {f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in (built.wheel, built.first)}
    assert set(lines) == wanted


@pytest.fixture(scope="module")
def of_arm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The tree of the packages for aarch64."""
    if shutil.which(ARM.compiler) is None:
        pytest.skip(f"needs {ARM.compiler}")
    dist = tmp_path_factory.mktemp("arm")
    tree = dist / "tree"
    tree.mkdir()
    packages.make_tree(packages.build_wheel(packages.build_sdist(dist), dist, ARM), tree, ARM)
    yield tree
    shutil.rmtree(dist)


@pytest.mark.skipif(OWN == ARM, reason="this is the machine itself")
def test_what_is_compiled_in_the_packages_for_aarch64_is_for_it(of_arm: Path) -> None:
    program = of_arm / packages.ENVIRONMENT / packages.LIBRARIES / "migrator/native/migrator-native"
    found = {file: file.read_bytes()[:20] for file in of_arm.rglob("*") if file.is_file() and not file.is_symlink()}
    compiled = {file: head[MACHINE_OF_ELF] for file, head in found.items() if head.startswith(b"\x7fELF")}
    assert program in compiled
    assert len(compiled) > 10
    assert set(compiled.values()) == {(183).to_bytes(2, "little")}


@pytest.mark.skipif(OWN == ARM or not os.path.exists(QEMU), reason="needs qemu-user-static, and another machine")
def test_the_packages_for_aarch64_migrate_under_qemu(of_arm: Path, tmp_path: Path) -> None:
    root, site = tmp_path / "root", tmp_path / "site"
    options = [
        "--quiet",
        "--variant=extract",
        f"--architectures={ARM.debian}",
        f"--include={packages.PYTHON},libstdc++6",
    ]
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap")
    subprocess.run(["mmdebstrap", *options, "bookworm", str(root)], check=True)
    shutil.copytree(of_arm, root, symlinks=True, dirs_exist_ok=True)
    (site / "old/home/alice").mkdir(parents=True)
    (site / "old/home/alice/letter").write_text("of alice")
    (site / "new").mkdir()
    verbs = ["init --source-mount old --target-mount new --trees home/*", "plan", "run --all", "verify --all"]
    namespaces = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv = [*namespaces, "bash", "-efuc", ON_ARM, "bash", str(root), *verbs]
    done = subprocess.run(argv, cwd=site, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (site / "new/home/alice/letter").read_text() == "of alice"
    assert list((site / "state/manifests").glob("*/manifest.parquet"))
