"""Which interpreter `tools/setup.sh` takes, and what it does to the machine."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "setup.sh"
DEBIAN = "/usr/bin/python3"
NEEDED = "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"


def found(path: str, **environment: str) -> str:
    """What the script's own function finds."""
    function = SCRIPT.read_text(encoding="utf-8").partition("find_python() {")[2].partition("\n}\n")[0]
    script = f"set -euo pipefail\nfail() {{ exit 1; }}\nfind_python() {{{function}\n}}\nfind_python"
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        env={"PATH": path, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def own_python(directory: Path) -> Path:
    """An interpreter that serves, in a directory of somebody's own, under every name that is looked for."""
    directory.mkdir()
    for name in ("python3", "python3.11", "python3.12"):
        (directory / name).write_text(f'#!/bin/bash\n[[ $2 != *executable* ]] || echo "{directory / name}"\n')
        (directory / name).chmod(0o755)
    return directory


def test_debians_own_interpreter_goes_before_one_that_is_first_on_the_path(tmp_path: Path) -> None:
    if (
        not os.path.exists(DEBIAN)
        or subprocess.run([DEBIAN, "-c", NEEDED], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"{DEBIAN} is missing, too old, or cannot make virtual environments")
    own = own_python(tmp_path / "own")
    assert found(f"{own}:/usr/bin:/bin") == DEBIAN


def test_an_interpreter_that_is_named_goes_before_all(tmp_path: Path) -> None:
    own = own_python(tmp_path / "own")
    assert found("/usr/bin:/bin", PYTHON=str(own / "python3.12")) == str(own / "python3.12")


def install(directory: Path, apt_get: str) -> "subprocess.CompletedProcess[str]":
    """Run the part that installs with an `apt-get` of this shell command, and say what its state was meanwhile."""
    text = SCRIPT.read_text(encoding="utf-8")
    function = text.partition("without_services() {")[2].partition("\n}\n")[0]
    (directory / "apt-get").write_text(f"#!/bin/bash\n{apt_get}\n")
    (directory / "apt-get").chmod(0o755)
    script = (
        f"set -euo pipefail\npolicy={directory}/policy-rc.d\nwithout_services() {{{function}\n}}\n"
        f"without_services {directory}/apt-get install || echo failed"
    )
    return subprocess.run(
        ["/bin/bash", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )


def test_no_daemon_starts_because_it_is_installed(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    asked = f"{policy} ssh start; echo code $?"
    assert install(tmp_path, asked).stdout == "code 101\n"
    assert not policy.exists()
    assert install(tmp_path, "exit 100").stdout == "failed\n"
    assert not policy.exists()


@pytest.mark.parametrize(("packages", "installs"), [("none", False), ("", True)])
def test_no_package_is_installed_where_that_is_asked_for(packages: str, installs: bool) -> None:
    choice = SCRIPT.read_text(encoding="utf-8").partition("\nif [[ ${PACKAGES")[2].partition("\nfi\n")[0]
    # Root on Debian, whoever runs the test.
    choice = choice.replace("EUID != 0", "0")
    stubs = "say() { :; }\nhas() { :; }\ninstall_packages() { echo installs; }\n"
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -euo pipefail\n{stubs}if [[ ${{PACKAGES{choice}\nfi"],
        env={"PATH": "/usr/bin:/bin", "PACKAGES": packages},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ("installs\n" if installs else "")


def test_what_the_machine_says_of_its_daemons_stays(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 7\n")
    policy.chmod(0o755)
    assert install(tmp_path, f"{policy} ssh start; echo code $?").stdout == "code 7\n"
    assert policy.exists()


def test_a_changed_source_or_a_program_that_is_gone_asks_for_a_new_set_up(tmp_path: Path) -> None:
    function = SCRIPT.read_text(encoding="utf-8").partition("set_up_from() {")[2].partition("\n}\n")[0]
    script = f"set -euo pipefail\nset_up_from() {{{function}\n}}\nset_up_from"
    native = tmp_path / "migrator" / "native"
    (native / "src").mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    files = ["requirements.lock", "setup.cfg", "setup.py", "pyproject.toml", "tools/setup.sh"]
    files += [f"migrator/native/src/{name}" for name in ("main.c", "walk.h")]
    for name in files:
        (tmp_path / name).write_text("first\n")

    def state(**environment: str) -> str:
        return subprocess.run(
            ["/bin/bash", "-c", script],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    states = [state()]
    assert states == [state()]
    (native / "migrator-native").write_text("")
    (native / "migrator-native").chmod(0o755)
    states.append(state())
    for name in files:
        (tmp_path / name).write_text("second\n")
        states.append(state())
    assert len(set(states)) == len(states)
