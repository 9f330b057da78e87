"""Build dist/: sdist, the wheel made of it, a .deb and a .rpm with all libraries, their components, checksums: `make packages`.

Needs a network for libraries that pip has not cached, and Debian's Python 3.11, for which the packages are.
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
from pathlib import Path

from click.shell_completion import get_completion_class
from setuptools import build_meta

from migrator import __version__
from migrator.cli.main import main
from tools.components import list_components
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
DEB_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def build_sdist_and_wheel(dist: Path) -> Path:
    """The wheel, made of the sdist and not of this checkout."""
    sdist = dist / build_meta.build_sdist(str(dist), {"--global-option": ["--quiet"]})
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--no-cache-dir", "--wheel-dir", str(dist)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(sdist)], check=True)
    (wheel,) = dist.glob(f"migrator-{__version__}-*.whl")
    return wheel


def make_tree(wheel: Path, tree: Path) -> None:
    """Everything that both packages install, below `tree`."""
    _make_environment(wheel, tree)
    _move(tree / ENVIRONMENT / "share/doc/migrator", tree / MANUAL)
    shutil.rmtree(tree / ENVIRONMENT / "share")
    shutil.copy(PARTS / "copyright", tree / MANUAL / "copyright")
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


def _make_environment(wheel: Path, tree: Path) -> None:
    """A virtual environment for the distribution's Python that is complete where it is installed, and compiled."""
    environment = tree / ENVIRONMENT
    options = ["--quiet", "--ignore-installed", "--no-compile", "--only-binary=:all:", "--no-warn-script-location"]
    options += ["--disable-pip-version-check", "--no-deps", "--prefix", str(environment)]
    for what in (["--require-hashes", "--requirement", str(ROOT / PROGRAM)], [str(wheel)]):
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *what], check=True)
    libraries = environment / LIBRARIES
    for pattern in NOT_NEEDED:
        for path in libraries.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    # ClusterShell would prefer its defaults there to the groups of hosts in /etc/clustershell.
    shutil.rmtree(environment / "etc")
    # Programs of libraries, made for the interpreter of the build.
    shutil.rmtree(environment / "bin")
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


def build_deb(tree: Path, dist: Path, *, revision: int, level: int = ZSTD_LEVEL) -> Path:
    """The .deb, made by dpkg-deb alone; `tree` gets its control files."""
    machine = DEB_MACHINES[platform.machine()]
    control = tree / "DEBIAN"
    control.mkdir()
    installed_kib = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file()) // 1024
    fields = {
        "Package": "migrator",
        "Version": f"{__version__}-{revision}",
        "Architecture": machine,
        "Maintainer": "the authors of migrator <root@localhost>",
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
    package = dist / f"migrator_{fields['Version']}_{machine}.deb"
    options = ["--root-owner-group", "-Zzstd", f"-z{level}"]
    subprocess.run(["dpkg-deb", *options, "--build", tree, package], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(control)
    return package


def _script(name: str) -> str:
    guard = (PARTS / "guard.sh").read_text(encoding="utf-8")
    return f"#!/bin/sh\nset -e\n{guard}\n{(PARTS / f'{name}.sh').read_text(encoding='utf-8')}"


def build_rpm(tree: Path, dist: Path, *, revision: int, level: int = ZSTD_LEVEL) -> Path:
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
            platform.machine(),
        ]
        subprocess.run(["rpmbuild", *options, "-bb", spec], check=True)
        (made,) = Path(scratch).rglob("*.rpm")
        return Path(shutil.move(made, dist / made.name))


def write_components(tree: Path, dist: Path) -> Path:
    """What the packages hold, as CycloneDX reads it; the time is that of the build."""
    made = dt.datetime.now(dt.UTC)
    document = list_components(tree / ENVIRONMENT / LIBRARIES, locked(ROOT / PROGRAM), made)
    path = dist / f"migrator-{__version__}.cdx.json"
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
    packages = [build_sdist_and_wheel(dist), *dist.glob("*.tar.gz")]
    if not _is_python_of_packages():
        sys.exit(f"packages: .deb and .rpm need {PYTHON} as the Python of .venv; only sdist and wheel were built")
    with tempfile.TemporaryDirectory(dir=dist) as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        make_tree(packages[0], tree)
        packages.append(write_components(tree, dist))
        packages.append(build_deb(tree, dist, revision=1))
        if shutil.which("rpmbuild"):
            packages.append(build_rpm(tree, dist, revision=1))
        else:
            print("packages: no rpmbuild (Debian: the package rpm): no .rpm was built")
        size_bytes = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file())
        print(f"{size_bytes / 1e6:8.1f} MB  installed")
    write_checksums(dist, packages)


def _is_python_of_packages() -> bool:
    return f"python{sys.version_info.major}.{sys.version_info.minor}" == PYTHON


if __name__ == "__main__":
    os.chdir(ROOT)
    make_packages(ROOT / "dist")
