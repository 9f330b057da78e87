#!/bin/bash
# Every check, to the end, whatever fails before; the exit code says whether all of it passed.
# TEST_WORKERS sets how many processes run tests (2).
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

check "ruff check" "$bin/ruff" check .
check "ruff format" "$bin/ruff" format --check .
check "mypy" "$bin/mypy"
check "lint-imports" "$bin/lint-imports"
# Those that need no cluster; then those on real clusters and those that break things, which mostly wait. Each process
# has a lab of its own.
check "tests" "$bin/python" -m pytest -q -rs -n "${TEST_WORKERS:-2}" tests/unit tests/contracts tests/integration tests/docs
check "tests on a real cluster and of faults" "$bin/python" -m pytest -q -rs -n "${TEST_WORKERS:-2}" \
    tests/cluster tests/faults

if ((${#failed[@]})); then
    printf '\nfailed: %s\n' "$(printf '%s, ' "${failed[@]}" | sed 's/, $//')"
    exit 1
fi
printf '\nall checks passed\n'
