"""Build dist/: sdist, and for each machine a wheel made of it, a .deb and a .rpm with all libraries, and their components; checksums:
`make packages`.

Machines are this one and those that Debian's cross compiler is installed for. Needs a network for libraries that pip has not
cached, and Debian's Python 3.11, for which the packages are. `DEBFULLNAME` and `DEBEMAIL` name who answers for the packages.
"""

import compileall
import datetime as dt
import gzip
import hashlib
import os
import platform
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from click.shell_completion import get_completion_class
from setuptools import build_meta

from migrator import __version__
from migrator.cli.main import main
from tools.components import list_components
from tools.licences import copyright_of, licenses_of
from tools.locks import PROGRAM, locked
from tools.man_pages import write_man_pages
from tools.manual_site import build_site

ROOT = Path(__file__).resolve().parent.parent
PARTS = ROOT / "tools" / "packaging"
UNITS = (
    "migrator@.service",
    "migrator-report.service",
    "migrator-report.timer",
    "migrator-publish.service",
    "migrator-publish.timer",
    "migrator-page.service",
    "migrator-serve.service",
)
ENVIRONMENT = Path("usr/lib/migrator")
MANUAL = Path("usr/share/doc/migrator")
PYTHON = "python3.11"
LIBRARIES = Path("lib") / PYTHON / "site-packages"
SUMMARY = "Move a production GlusterFS volume to BeeGFS, user by user"
DESCRIPTION = (
    "migrator moves the users of a GlusterFS volume that stays in production to BeeGFS, one user at a time, and proves "
    "every byte before it switches a user over. The package has all its Python libraries: it needs no network and no compiler."
)
START = f"""\
#!/{ENVIRONMENT}/bin/python3 -I
from migrator.__main__ import program

program()
"""
COMPLETIONS = {
    "bash": ("usr/share/bash-completion/completions/migrator",),
    "zsh": ("usr/share/zsh/vendor-completions/_migrator", "usr/share/zsh/site-functions/_migrator"),
    "fish": ("usr/share/fish/vendor_completions.d/migrator.fish",),
}
"""Debian's zsh reads the first place, that of RHEL the second."""
NOT_NEEDED = ("pyarrow/include", "pyarrow/tests", "pyarrow/src", "*/direct_url.json")
"""Below site-packages: for those who compile against pyarrow or test it, and a path of the machine of the build."""
ZSTD_LEVEL = 12
"""85 MB in 12 s; xz makes 71 MB in minutes (two cores)."""
GLIBC_MINORS = range(17, 29)
"""Libraries in the packages need no later glibc than 2.28, that of RHEL 8."""


@dataclass(frozen=True)
class Machine:
    """A kind of machine that packages are for, as `uname -m` and as Debian name it."""

    name: str
    debian: str

    @property
    def is_own(self) -> bool:
        """Whether the packages are for machines as this one."""
        return self.name == platform.machine()

    @property
    def compiler(self) -> str:
        """The name of Debian's C compiler for it."""
        return f"{self.name}-linux-gnu-gcc"

    @property
    def static_library(self) -> str:
        """The package of Debian with the C library that is linked into the compiled program."""
        return "libc6-dev" if self.is_own else f"libc6-dev-{self.debian}-cross"


MACHINES = (Machine("x86_64", "amd64"), Machine("aarch64", "arm64"))


def find_machines() -> list[Machine]:
    """The machines that this one can build for, itself first."""
    own = [machine for machine in MACHINES if machine.is_own]
    return own + [machine for machine in MACHINES if not machine.is_own and shutil.which(machine.compiler)]


def build_sdist(dist: Path) -> Path:
    """The sources with the commit."""
    name: str = build_meta.build_sdist(str(dist), {"--global-option": ["--quiet"]})
    return dist / name


@contextmanager
def compiler_for(machine: Machine) -> Iterator[str]:
    """The command that compiles for another machine: with the headers of xxHash, which are the same for all and which its compiler
    does not find among those of this machine.
    """
    with tempfile.TemporaryDirectory() as headers:
        for header in Path("/usr/include").glob("xxh*.h"):
            shutil.copy(header, headers)
        yield f"{machine.compiler} -I{headers}"


def build_wheel(sdist: Path, dist: Path, machine: Machine) -> Path:
    """The wheel, made of the sdist and not of this checkout."""
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--no-cache-dir", "--wheel-dir", str(dist)]
    call = [sys.executable, "-m", "pip", "wheel", *options, str(sdist)]
    if machine.is_own:
        subprocess.run(call, check=True)
    else:
        settings = f"--config-settings=--build-option=--plat-name=linux_{machine.name}"
        with compiler_for(machine) as compiler:
            subprocess.run([*call, settings], env={**os.environ, "CC": compiler}, check=True)
    (wheel,) = dist.glob(f"migrator-{__version__}-*_{machine.name}.whl")
    return wheel


def make_tree(wheel: Path, tree: Path, machine: Machine) -> None:
    """Everything that both packages install, below `tree`."""
    _make_environment(wheel, tree, machine)
    (tree / MANUAL / "copyright").write_text(
        copyright_of(tree / ENVIRONMENT / LIBRARIES, ENVIRONMENT / LIBRARIES), encoding="utf-8"
    )
    build_site(tree / MANUAL, tree / MANUAL / "html")
    program = tree / "usr/bin/migrator"
    program.parent.mkdir()
    program.symlink_to("../lib/migrator/bin/migrator")
    units = tree / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for unit in UNITS:
        shutil.copyfile(ROOT / "docs/samples" / unit, units / unit)
    (tree / "etc/migrator").mkdir(parents=True)
    _write_completions(tree)
    pages = tree / "usr/share/man/man1"
    write_man_pages(pages)
    for page in pages.iterdir():
        (pages / f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()


def _make_environment(wheel: Path, tree: Path, machine: Machine) -> None:
    """A virtual environment for the distribution's Python that is complete where it is installed, and compiled; and the manual."""
    environment = tree / ENVIRONMENT
    libraries = environment / LIBRARIES
    options = ["--quiet", "--no-compile", "--only-binary=:all:", "--no-deps", "--disable-pip-version-check"]
    options += ["--target", str(libraries), "--implementation", "cp", "--python-version", PYTHON.removeprefix("python")]
    options += ["--abi", PYTHON.replace("python3.", "cp3"), "--abi", "abi3", "--abi", "none"]
    for minor in reversed(GLIBC_MINORS):
        options += ["--platform", f"manylinux_2_{minor}_{machine.name}"]
    for what in (["--require-hashes", "--requirement", str(ROOT / PROGRAM)], ["--upgrade", str(wheel)]):
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *what], check=True)
    _move(libraries / "share/doc/migrator", tree / MANUAL)
    shutil.rmtree(libraries / "share")
    for pattern in NOT_NEEDED:
        for path in libraries.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    # ClusterShell would prefer its defaults there to the groups of hosts in /etc/clustershell.
    shutil.rmtree(libraries / "etc")
    # Programs of libraries, made for the interpreter of the build.
    shutil.rmtree(libraries / "bin")
    (environment / "bin").mkdir()
    (environment / "bin/python3").symlink_to(f"/usr/bin/{PYTHON}")
    (environment / "bin/migrator").write_text(START, encoding="ascii")
    (environment / "bin/migrator").chmod(0o755)
    settings = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON.removeprefix('python')}\n"
    (environment / "pyvenv.cfg").write_text(settings, encoding="ascii")
    # Not at installation: a removal leaves no compiled file behind. By content: unpacking may change times.
    compileall.compile_dir(
        libraries,
        quiet=2,
        stripdir=str(tree),
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def _write_completions(tree: Path) -> None:
    for shell, places in COMPLETIONS.items():
        kind = get_completion_class(shell)
        assert kind is not None
        script = kind(main, {}, "migrator", "_MIGRATOR_COMPLETE").source()
        for place in places:
            (tree / place).parent.mkdir(parents=True, exist_ok=True)
            (tree / place).write_text(script, encoding="utf-8")


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True)
    source.rename(target)


def maintainer() -> str:
    """Whoever builds the packages, as Debian's tools name them."""
    name, address = os.environ.get("DEBFULLNAME"), os.environ.get("DEBEMAIL")
    if name and address:
        return f"{name} <{address}>"
    return "unknown (built without DEBFULLNAME and DEBEMAIL) <root@localhost>"


def build_deb(tree: Path, dist: Path, machine: Machine, *, revision: int, level: int = ZSTD_LEVEL) -> Path:
    """The .deb, made by dpkg-deb alone; `tree` gets its control files."""
    control = tree / "DEBIAN"
    control.mkdir()
    installed_kib = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file()) // 1024
    fields = {
        "Package": "migrator",
        "Version": f"{__version__}-{revision}",
        "Architecture": machine.debian,
        "Maintainer": maintainer(),
        "Installed-Size": str(installed_kib),
        "Depends": f"{PYTHON}, libc6 (>= 2.28), libstdc++6",
        "Recommends": "openssh-client",
        "Suggests": "rsync, fpart, chromium",
        "Section": "admin",
        "Priority": "optional",
        "Description": f"{SUMMARY}\n{textwrap.fill(DESCRIPTION, 78, initial_indent=' ', subsequent_indent=' ')}",
    }
    (control / "control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()), encoding="utf-8")
    for script in ("prerm", "postinst", "postrm"):
        (control / script).write_text(_script(script), encoding="utf-8")
        (control / script).chmod(0o755)
    files = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
    digests = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n"
        for path in files
        if control not in path.parents
    ]
    (control / "md5sums").write_text("".join(digests), encoding="utf-8")
    package = dist / f"migrator_{fields['Version']}_{machine.debian}.deb"
    options = ["--root-owner-group", "-Zzstd", f"-z{level}"]
    subprocess.run(["dpkg-deb", *options, "--build", tree, package], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(control)
    return package


def _script(name: str) -> str:
    guard = (PARTS / "guard.sh").read_text(encoding="utf-8")
    return f"#!/bin/sh\nset -e\n{guard}\n{(PARTS / f'{name}.sh').read_text(encoding='utf-8')}"


def build_rpm(tree: Path, dist: Path, machine: Machine, *, revision: int, level: int = ZSTD_LEVEL) -> Path:
    """The .rpm of the same files, for distributions with Python 3.11 in /usr/bin."""
    guard = (PARTS / "guard.sh").read_text(encoding="utf-8")
    files = ["%attr(0755, root, root) %dir /etc/migrator", f"/{ENVIRONMENT}", f"%doc /{MANUAL}", "/usr/bin/migrator"]
    files += [f"/usr/lib/systemd/system/{unit}" for unit in UNITS]
    files += [f"/{place}" for places in COMPLETIONS.values() for place in places]
    files += ["/usr/share/man/man1/migrator*.1.gz"]
    text = (PARTS / "migrator.spec").read_text(encoding="utf-8")
    values = {
        "VERSION": __version__,
        "REVISION": str(revision),
        "SUMMARY": SUMMARY,
        "DESCRIPTION": textwrap.fill(DESCRIPTION, 78),
        "PACKAGER": maintainer(),
        "LICENSES": " AND ".join(licenses_of(tree / ENVIRONMENT / LIBRARIES)),
        "PYTHON": PYTHON,
        "TREE": str(tree),
        "LEVEL": str(level),
        "GUARD": guard.replace("%", "%%"),
        "FILES": "\n".join(files),
    }
    with tempfile.TemporaryDirectory() as scratch:
        spec = Path(scratch) / "migrator.spec"
        spec.write_text(re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], text), encoding="utf-8")
        options = [
            "--quiet",
            "--define",
            f"_topdir {scratch}",
            "--define",
            f"_rpmdir {scratch}",
            "--target",
            machine.name,
        ]
        subprocess.run(["rpmbuild", *options, "-bb", spec], check=True)
        (made,) = Path(scratch).rglob("*.rpm")
        return Path(shutil.move(made, dist / made.name))


def write_components(tree: Path, dist: Path, machine: Machine) -> Path:
    """What the packages hold, as CycloneDX reads it; the time is that of the build."""
    made = dt.datetime.now(dt.UTC)
    compiled_in = (machine.static_library, "libxxhash-dev")
    document = list_components(tree / ENVIRONMENT / LIBRARIES, locked(ROOT / PROGRAM), compiled_in, made)
    path = dist / f"migrator-{__version__}.{machine.name}.cdx.json"
    path.write_text(document, encoding="utf-8")
    return path


def write_checksums(dist: Path, packages: list[Path]) -> None:
    """SHA256SUMS, as `sha256sum --check` reads it; prints sizes."""
    lines = []
    for package in sorted(packages):
        with package.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {package.name}\n")
        print(f"{package.stat().st_size / 1e6:8.1f} MB  {package}")
    (dist / "SHA256SUMS").write_text("".join(lines), encoding="ascii")


def make_packages(dist: Path) -> None:
    """All of it; what lies in `dist` is removed."""
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    os.umask(0o022)
    sdist = build_sdist(dist)
    wheels = {machine: build_wheel(sdist, dist, machine) for machine in find_machines()}
    packages = [sdist, *wheels.values()]
    if not _is_python_of_packages():
        sys.exit(f"packages: .deb and .rpm need {PYTHON} as the Python of .venv; only sdist and wheels were built")
    if not shutil.which("rpmbuild"):
        print("packages: no rpmbuild (Debian: the package rpm): no .rpm is built")
    for machine, wheel in wheels.items():
        with tempfile.TemporaryDirectory(dir=dist) as scratch:
            tree = Path(scratch) / "tree"
            tree.mkdir()
            make_tree(wheel, tree, machine)
            packages.append(write_components(tree, dist, machine))
            packages.append(build_deb(tree, dist, machine, revision=1))
            if shutil.which("rpmbuild"):
                packages.append(build_rpm(tree, dist, machine, revision=1))
            size_bytes = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file())
            print(f"{size_bytes / 1e6:8.1f} MB  installed, {machine.name}")
    write_checksums(dist, packages)


def _is_python_of_packages() -> bool:
    return f"python{sys.version_info.major}.{sys.version_info.minor}" == PYTHON


if __name__ == "__main__":
    os.chdir(ROOT)
    make_packages(ROOT / "dist")
