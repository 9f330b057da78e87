#!/bin/bash
# Every check, to the end, whatever fails before; the exit code says whether all of it passed.
# TEST_WORKERS sets how many processes run the tests that compute (2), TEST_WAITERS how many run those that mostly wait (3).
set -uo pipefail
cd "$(dirname "$0")/.."

bin=${MIGRATOR_VENV:-.venv}/bin
# The tests start the program hundreds of times: it need not be compiled each time.
unset PYTHONDONTWRITEBYTECODE
failed=()

check() {
    local name=$1
    shift
    printf '\n== %s\n' "$name"
    "$@" || failed+=("$name")
}

# Tests of one file stay together, so that what they share is made once; a process without work takes some from the others.
tests() {
    local processes=$1
    shift
    "$bin/python" -m pytest -q -rs -n "$processes" --dist worksteal "$@"
}

# Those on real clusters and those that break things wait for daemons, leases and deadlines two thirds of their time. So they
# run beside everything else, and their output comes last. Each process has a lab of its own.
waiting_output=$(mktemp)
set -m # a group of its own, which can be interrupted
tests "${TEST_WAITERS:-3}" tests/cluster tests/faults >"$waiting_output" 2>&1 &
waiting=$!
set +m

leave() {
    if kill -INT -- "-$waiting" 2>/dev/null; then
        wait "$waiting" # labs are taken down
    fi
    rm -f "$waiting_output"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

check "ruff check" "$bin/ruff" check .
check "ruff format" "$bin/ruff" format --check .
check "mypy" "$bin/mypy"
check "lint-imports" "$bin/lint-imports"
check "tests" tests "${TEST_WORKERS:-2}" tests/unit tests/contracts tests/integration tests/docs

followed() {
    tail -n +1 -f --pid="$waiting" "$waiting_output"
    wait "$waiting"
}
check "tests on a real cluster and of faults" followed

if ((${#failed[@]})); then
    printf '\nfailed: %s\n' "$(printf '%s, ' "${failed[@]}" | sed 's/, $//')"
    exit 1
fi
printf '\nall checks passed\n'
