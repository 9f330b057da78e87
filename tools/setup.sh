#!/bin/bash
# Make this checkout ready to run: Debian packages that are missing (as root) and .venv with pinned versions.
# May be called again at any time, and is quick when there is nothing to do. MIGRATOR_VENV names another directory
# than .venv; PYTHON another interpreter than the first that serves. PACKAGES=none: no Debian package is installed, for the
# machine of a real migration, which needs none of what labs and tests do; program: as none, and .venv gets no tools of
# tests; all: also those that only `make test-all` needs.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${MIGRATOR_VENV:-.venv}
packages=(glusterfs-server glusterfs-client rsync xfsprogs attr acl iproute2 python3-venv fuse3
    gcc libc6-dev libxxhash-dev libfuse3-dev pkg-config openssh-server openssh-client fpart slurmctld slurmd
    slurm-client munge strace chromium fonts-dejavu-core fio make prometheus tmux xxhash)
[[ ${PACKAGES:-} != all ]] || packages+=(moosefs-master moosefs-chunkserver moosefs-client moosefs-cli
    ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse ceph-common mmdebstrap rpm groff-base
    gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
locks=(requirements.lock requirements-build.lock)
[[ ${PACKAGES:-} == program ]] || locks+=(requirements-test.lock)
# What must be there in the end, whoever installed it: package and one command of it.
needed=(rsync:rsync)
wanted=(glusterfs-server:glusterd glusterfs-client:glusterfs xfsprogs:mkfs.xfs attr:setfattr acl:setfacl iproute2:ip
    fuse3:fusermount3 gcc:gcc openssh-server:sshd openssh-client:ssh fpart:fpsync slurmctld:slurmctld slurmd:slurmd
    slurm-client:srun munge:munged strace:strace
    chromium:chromium fio:fio make:make prometheus:promtool tmux:tmux xxhash:xxh128sum)

# What these packages would start on this machine.
declare -A services=([openssh-server]=ssh.service [slurmctld]=slurmctld.service [slurmd]=slurmd.service
    [munge]=munge.service [moosefs-master]=moosefs-master.service [moosefs-chunkserver]=moosefs-chunkserver.service
    [prometheus]=prometheus.service)
policy=/usr/sbin/policy-rc.d

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
    say "$@"
    exit 1
}

installed() { [[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null) == ii* ]]; }

has() { PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v "$1" >/dev/null; }

install_packages() {
    local missing=() package
    # Debian's fpart wants a command `mail`, that one a mail server, and the first that apt finds would listen here.
    has sendmail || packages+=(msmtp-mta)
    for package in "${packages[@]}"; do
        installed "$package" || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    say "installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    local options=(-qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    apt-get "${options[@]}" update || fail "apt-get update failed: is there a network, and a Debian mirror?"
    without_services apt-get "${options[@]}" install --yes --no-install-recommends "${missing[@]}" >&2 ||
        fail "apt-get could not install: ${missing[*]}"
    keep_services_off "${missing[@]}"
}

# Only the programs are wanted, for labs and tests start daemons of their own: nothing that is installed here shall listen
# on this machine. Debian starts what it installs unless this file says no; one that is there already says what it says.
without_services() {
    [[ ! -e $policy ]] || {
        "$@"
        return
    }
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    local code=0
    "$@" || code=$?
    rm -f "$policy"
    trap - EXIT
    return "$code"
}

# Nor after the next start of the machine: of the packages that were missing, not of those that were there.
keep_services_off() {
    has systemctl && [[ -d /run/systemd/system ]] || return 0
    local package
    for package in "$@"; do
        [[ -z ${services[$package]:-} ]] || systemctl --quiet disable "${services[$package]}" ||
            say "${services[$package]} could not be disabled"
    done
}

check_commands() {
    local pair missing=()
    for pair in "${needed[@]}"; do
        has "${pair#*:}" || fail "${pair#*:} is missing: install the package ${pair%:*}, or run this as root on Debian"
    done
    for pair in "${wanted[@]}"; do
        has "${pair#*:}" || missing+=("${pair%:*}")
    done
    ((${#missing[@]} == 0)) ||
        say "not installed, and what needs it is skipped (the lab with a real cluster, tests): ${missing[*]}"
}

# An interpreter that is new enough and can make virtual environments. Debian's own comes first: one that lies in
# somebody's home directory (pyenv) could be executed by nobody else. It can make none (it has no ensurepip) until
# python3-venv is installed.
find_python() {
    local candidate without_venv=""
    for candidate in ${PYTHON:+"$PYTHON"} /usr/bin/python3 python3.11 python3 python3.12 python3.13; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
        without_venv=$candidate
    done
    [[ -z $without_venv ]] || fail "$without_venv cannot make virtual environments: install the package python3-venv"
    fail "no Python 3.11 or later: install python3 (Debian 12 has 3.11), or name one: PYTHON=/path/to/python3 make venv"
}

# Everything that decides what .venv and the compiled program hold, as one line: whether the program is there belongs to
# it, so that it is built again when it was removed.
set_up_from() {
    local program=migrator/native/migrator-native
    printf '%s %s %s %s\n' "$PWD" "${locks[*]}" "$([[ -x $program ]] && echo built || echo missing)" \
        "$(cat requirements*.lock setup.cfg setup.py pyproject.toml tools/setup.sh migrator/native/src/*.[ch] | sha256sum)"
}

make_venv() {
    local stamp=$venv/.migrator-setup state python
    state=$(set_up_from)
    if [[ -f $stamp && $(<"$stamp") == "$state" ]] && "$venv/bin/python" -c 'import migrator, click' 2>/dev/null; then
        return
    fi
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        python=$(find_python)
        say "making $venv with $python"
        "$python" -m venv --clear "$venv"
    fi
    say "installing pinned versions into $venv"
    local options=(--quiet --disable-pip-version-check --no-input)
    # --no-deps: the locks are complete; a test compares them.
    "$venv/bin/python" -m pip install "${options[@]}" --no-deps --require-hashes "${locks[@]/#/--requirement=}" ||
        fail "pip could not install what ${locks[*]} name: is there a network?"
    # The build tool is pinned there too, so nothing is fetched for the build.
    "$venv/bin/python" -m pip install "${options[@]}" --no-deps --no-build-isolation -e . ||
        fail "migrator could not be built: see above"
    # As pip does where it copies a program: otherwise the first call of each verb would compile what it loads.
    "$venv/bin/python" -m compileall -q migrator
    set_up_from >"$stamp"
}

if [[ ${PACKAGES:-} == none || ${PACKAGES:-} == program ]]; then
    say "PACKAGES=$PACKAGES: Debian packages are not installed"
elif ((EUID != 0)); then
    say "not root: Debian packages are not installed"
elif ! has apt-get || ! has dpkg-query; then
    say "no apt-get: packages are not installed"
else
    install_packages
fi
check_commands
make_venv
say "ready: $venv/bin/migrator"
