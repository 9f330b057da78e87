#!/bin/bash
# Every check, to the end, whatever fails before; the exit code says whether all of it passed. With the word `all`, the
# tests marked `exhaustive` too.
# TEST_WORKERS sets how many processes run the tests without a cluster (3: some wait), TEST_LABS how many run those on real
# clusters (1; 3 with `all`). Each process has clusters of its own.
set -uo pipefail
cd "$(dirname "$0")/.."

bin=${MIGRATOR_VENV:-.venv}/bin
case ${1:-} in
all) only="" profile=exhaustive labs=3 ;;
"") only=" and not exhaustive" profile=migrator labs=1 ;;
*)
    echo "usage: tools/test.sh [all]" >&2
    exit 2
    ;;
esac
# The tests start the program hundreds of times: it need not be compiled each time.
unset PYTHONDONTWRITEBYTECODE
MIGRATOR_TEST_BUILDS=$(mktemp -d)
export MIGRATOR_TEST_BUILDS
failed=()

check() {
    local name=$1
    shift
    printf '\n== %s\n' "$name"
    "$@" || failed+=("$name")
}

# A process without work takes some from the others.
tests() {
    local processes=$1 marks=$2
    shift 2
    "$bin/python" -m pytest -q -rs -n "$processes" --dist worksteal --durations=10 --hypothesis-profile "$profile" \
        -m "$marks$only" "$@"
}

# Clusters wait for daemons, leases and deadlines most of their time. So these tests run beside everything else, and their
# output comes last.
mapfile -t on_clusters < <(grep -rl --include='test_*.py' 'mark\.cluster' tests)
cluster_output=$(mktemp)
other_output=$(mktemp)
set -m # a group of its own, which can be interrupted
tests "${TEST_LABS:-$labs}" cluster "${on_clusters[@]}" >"$cluster_output" 2>&1 &
clusters=$!
set +m

leave() {
    if kill -INT -- "-$clusters" 2>/dev/null; then
        wait "$clusters" # labs are taken down
    fi
    rm -rf "$cluster_output" "$other_output" "$MIGRATOR_TEST_BUILDS"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Compiles the tests, which each process would do by itself.
"$bin/python" -m pytest --collect-only -qq tests >/dev/null 2>&1 &
compiling=$!

check "ruff check" "$bin/ruff" check .
check "ruff format" "$bin/ruff" format --check .
check "mypy" "$bin/mypy"
check "lint-imports" "$bin/lint-imports"
check "manual" "$bin/python" tools/manual_site.py
check "pip-audit" "$bin/python" tools/audit.py

others() {
    tests "${TEST_WORKERS:-3}" "not cluster" tests | tee "$other_output"
}
wait "$compiling"
check "tests without a cluster" others

followed() {
    tail -n +1 -f --pid="$clusters" "$cluster_output"
    wait "$clusters"
}
check "tests on real clusters" followed

printf '\n'
((${#failed[@]} == 0)) || printf 'failed: %s\n' "${failed[@]}"
tail -qn 1 "$other_output" "$cluster_output"
exit $((${#failed[@]} > 0))
