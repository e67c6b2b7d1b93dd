# Sourced by the tests of this directory: a cluster of their own, checks, and an end that leaves nothing behind.
#   bring_up NODES RATE      skips the test (exit code 77) where emulated clusters are impossible
#   check "what should be" CMD...      the test fails where CMD does, and goes on
#   fails_with CODE CMD...   true when CMD ends with that code
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cluster=$root/perf/cluster
bin=${EPCCL_BIN:-$root/build/bin}
unset EPCCL_CLUSTER_RUN
export EPCCL_CLUSTER=test-$$
scratch=$(mktemp -d)
failures=0

finish() {
    local code=$?
    trap - EXIT
    "$cluster" down || code=1
    rm -rf "$scratch"
    if [[ $code -eq 0 && $failures -gt 0 ]]; then
        echo "$failures checks failed"
        code=1
    fi
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

bring_up() {
    local code=0
    "$cluster" up "$@" 2>"$scratch/up" || code=$?
    [[ $code -ne 3 ]] || { echo "SKIPPED: $(cat "$scratch/up")"; exit 77; }
    [[ $code -eq 0 ]] || { cat "$scratch/up"; exit 1; }
}

check() {
    local what=$1 code=0
    shift
    "$@" || code=$?
    if [[ $code -eq 0 ]]; then
        echo "ok      $what"
    else
        echo "FAILED  $what (code $code of: $*)"
        failures=$((failures + 1))
    fi
}

fails_with() {
    local expected=$1 code=0
    shift
    "$@" || code=$?
    [[ $code -eq $expected ]] || { echo "        exit code $code instead of $expected"; return 1; }
}

# True when no process of the machine has WORD in its command line.
none_running() {
    local file
    for file in /proc/[0-9]*/cmdline; do
        if tr '\0' ' ' <"$file" 2>/dev/null | grep -qF "$1"; then
            tr '\0' ' ' <"$file"
            return 1
        fi
    done
}

# Patience for what the kernel does a moment later.
eventually() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.05
    done
    "$@"
}

# True when nothing is in /dev/shm of any node.
nothing_in_shm() {
    local node left
    for ((node = 0; node < $1; node++)); do
        left=$("$cluster" exec "$node" ls -A /dev/shm)
        [[ -z $left ]] || { echo "node $node: /dev/shm holds $left"; return 1; }
    done
}
