#!/usr/bin/env bash
# Fetches and runs the single-node OceanBase engine (seekdb) for tests and demos; no containers.
#
#   scripts/seekdb.sh fetch            prints the program's path; needs the network the first time only
#   scripts/seekdb.sh start DIR PORT   starts it on its data folder; returns once it takes connections
#   scripts/seekdb.sh stop DIR         stops the one that `start` started on this folder
#
# The user is `root` without a password: mysql://root@127.0.0.1:PORT/test
# PYTHON chooses the interpreter whose pip fetches the wheel (`python3` by default).
set -euo pipefail

version='1.4.0.post1'
memory_limit='3G'
start_seconds=120
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache="$root/.cache/seekdb"
program="$cache/$version/pylibseekdb/seekdb"
python=${PYTHON:-python3}

fail() {
    echo "seekdb: $1" >&2
    exit 1
}

# The folder of a version is renamed into place when it is complete, so finding it is enough.
fetch() {
    [ -x "$program" ] && return
    mkdir -p "$cache"
    local build
    build=$(mktemp -d "$cache/build.XXXXXX")
    trap 'rm -rf "'"$build"'"' EXIT
    # The program in the wheel does not care which Python fetches it, so one exact wheel is named.
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --implementation cp --python-version 3.11 --platform manylinux_2_28_x86_64 \
        --dest "$build" "pylibseekdb==$version" >"$build/log" 2>&1 ||
        fail "cannot fetch pylibseekdb $version: $(grep -m 1 -i error "$build/log" || tail -n 1 "$build/log")"
    "$python" -m zipfile -e "$build"/*.whl "$build/$version" || fail "cannot unpack the wheel"
    chmod +x "$build/$version/pylibseekdb/seekdb"
    # Another run may have been faster; its result is as good.
    [ -x "$program" ] || mv "$build/$version" "$cache/$version"
}

# Whether the process that `start` noted is still that program.
running() {
    local pid
    pid=$(cat "$1/seekdb.pid" 2>/dev/null) || return 1
    [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$(readlink -f "$program")" ]
}

# The server greets first, so a client that says nothing gets bytes as soon as it is ready.
greets() {
    local bytes
    bytes=$({ timeout 2 head -c 5 <"/dev/tcp/127.0.0.1/$1" | wc -c; } 2>/dev/null) || return 1
    [ "$bytes" -eq 5 ]
}

start() {
    local dir=$1 port=$2
    fetch
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    ! running "$dir" || fail "already running on $dir"
    ! greets "$port" || fail "port $port is in use"
    (
        cd "$dir"
        exec setsid "$program" --nodaemon --base-dir "$dir/data" -P "$port" \
            --parameter "memory_limit=$memory_limit" --parameter datafile_size=1G \
            --parameter log_disk_size=3G >"$dir/seekdb.log" 2>&1 </dev/null &
        echo $! >"$dir/seekdb.pid"
    )
    local deadline=$((SECONDS + start_seconds))
    until greets "$port"; do
        running "$dir" || fail "it ended while starting; see $dir/seekdb.log"
        [ "$SECONDS" -lt "$deadline" ] || fail "no connection on port $port after $start_seconds s"
        sleep 0.2
    done
}

stop() {
    local dir=$1 pid
    running "$dir" || return 0
    pid=$(cat "$dir/seekdb.pid")
    kill "$pid"
    for _ in $(seq 100); do
        running "$dir" || break
        sleep 0.1
    done
    ! running "$dir" || kill -9 "$pid"
    rm -f "$dir/seekdb.pid"
}

case "${1:-} $#" in
'fetch 1') fetch && echo "$program" ;;
'start 3') start "$2" "$3" ;;
'stop 2') stop "$2" ;;
*) fail 'usage: seekdb.sh fetch | start DIR PORT | stop DIR' ;;
esac
