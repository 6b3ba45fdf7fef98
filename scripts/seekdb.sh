#!/usr/bin/env bash
# Fetches and runs the single-node OceanBase engine (seekdb) for tests and demos; no containers.
#
#   scripts/seekdb.sh fetch             prints the program's path; needs the network the first time only
#   scripts/seekdb.sh start DIR PORT    starts it on its data folder, a new one or one used before;
#                                       returns once it takes connections
#   scripts/seekdb.sh stop DIR          stops the one that `start` started on this folder
#   scripts/seekdb.sh kill DIR          the same with SIGKILL, as a crash; `start` brings it back
#   scripts/seekdb.sh run DIR PORT      starts it, says `ready`, and kills it when standard input ends,
#                                       so that it never outlives whoever holds the other end
#   scripts/seekdb.sh with COMMAND...   runs a command with a server of its own on a free port, named in
#                                       POWERCONTEXT_TEST_OCEANBASE_URL, and removes it afterwards
#
# The user is `root` without a password: mysql://root@127.0.0.1:PORT/test. A process id stands in
# DIR/seekdb.pid, the server's own messages in DIR/seekdb.log. PYTHON chooses the interpreter whose pip
# fetches the wheel (`python3` by default), SEEKDB_MEMORY the limit of a server's memory.
set -euo pipefail

version='1.4.0.post1'
wheel_sha256='7c1c1e13148189af1332f69b896a818b674db3a4615c7caf1c9db05055738ad6'
memory_limit=${SEEKDB_MEMORY:-3G}
start_seconds=120
stop_seconds=20
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache="$root/.cache/seekdb"
program="$cache/$version/pylibseekdb/seekdb"
python=${PYTHON:-python3}

fail() {
    echo "seekdb: $1" >&2
    exit 1
}

# The folder of a version is renamed into place when it is complete, so finding it is enough. Of several
# runs at once one fetches and the others wait; without `flock` the last rename finds the work done.
fetch() {
    [ ! -x "$program" ] || return 0
    [ "$(uname -sm)" = 'Linux x86_64' ] || fail "there is no seekdb for $(uname -sm)"
    mkdir -p "$cache"
    (
        if command -v flock >/dev/null 2>&1; then
            exec 9>"$cache/lock"
            flock 9
        fi
        [ ! -x "$program" ] || exit 0
        build=$(mktemp -d "$cache/build.XXXXXX")
        trap 'rm -rf "$build"' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        unpack "$build"
        mv -T "$build/unpacked" "$cache/$version" 2>/dev/null || [ -x "$program" ] ||
            fail "cannot put the program into $cache"
    )
}

# The program in the wheel does not care which Python fetches it, so one exact wheel is named.
unpack() {
    local build=$1
    "$python" -m pip --version >/dev/null 2>&1 || python=$(bash "$root/scripts/python-env.sh")
    echo "pylibseekdb==$version --hash=sha256:$wheel_sha256" >"$build/requirement"
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --implementation cp --python-version 3.11 --platform manylinux_2_28_x86_64 \
        --require-hashes --requirement "$build/requirement" --dest "$build" >"$build/log" 2>&1 ||
        fail "cannot fetch pylibseekdb $version: $(grep -m 1 -i error "$build/log" || tail -n 1 "$build/log")"
    "$python" -m zipfile -e "$build"/*.whl "$build/unpacked" || fail "cannot unpack the wheel"
    chmod +x "$build/unpacked/pylibseekdb/seekdb"
}

# Whether the process that was noted for this folder still is that program.
running() {
    local pid
    pid=$(cat "$1/seekdb.pid" 2>/dev/null) || return 1
    [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$(readlink -f "$program")" ]
}

# Whether it holds nothing any more. A process that ends gives up its program before its port and the lock on
# its folder, so this waits until only its exit status is left.
gone() {
    local pid stat
    pid=$(cat "$1/seekdb.pid" 2>/dev/null) || return 0
    stat=$(cat "/proc/$pid/stat" 2>/dev/null) || return 0
    [[ "$stat" != "$pid (seekdb) "* || "$stat" == "$pid (seekdb) "[ZX]* ]]
}

# The server greets first, so a client that says nothing gets bytes as soon as it is ready.
greets() {
    local bytes
    bytes=$({ timeout 2 head -c 5 <"/dev/tcp/127.0.0.1/$1" | wc -c; } 2>/dev/null) || return 1
    [ "$bytes" -eq 5 ]
}

# Starts the server in the background and notes its process id; returns once the new process is that
# program, so that `running` means what it says.
launch() {
    local dir=$1 port=$2 pid
    ! running "$dir" || fail "already running on $dir"
    ! greets "$port" || fail "port $port is in use"
    "$program" --nodaemon --base-dir "$dir/data" -P "$port" \
        --parameter "memory_limit=$memory_limit" --parameter datafile_size=1G \
        --parameter log_disk_size=3G >>"$dir/seekdb.log" 2>&1 </dev/null &
    pid=$!
    # Its end is looked at by `running` and `gone`; the shell has nothing to say about it.
    disown "$pid"
    echo "$pid" >"$dir/seekdb.pid"
    until running "$dir" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
}

await_ready() {
    local dir=$1 port=$2 deadline=$((SECONDS + start_seconds))
    until greets "$port"; do
        running "$dir" || fail "it ended while starting; see $dir/seekdb.log"
        [ "$SECONDS" -lt "$deadline" ] || fail "no connection on port $port after $start_seconds s"
        sleep 0.1
    done
}

# Where the path has `.tmp` in it, the server takes its own log for a leftover and does not start again.
prepared() {
    local dir
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    [[ "$dir" != *.tmp* ]] || fail "the path of the folder must not have \`.tmp\` in it: $dir"
    echo "$dir"
}

# A start that fails or is interrupted leaves nothing running.
start() {
    local dir port=$2
    fetch
    dir=$(prepared "$1") || exit 1
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # The server becomes its own group leader here, so that a terminal's interrupt does not reach it.
    set -m
    launch "$dir" "$port"
    set +m
    trap 'kill_now "'"$dir"'"' EXIT
    await_ready "$dir" "$port"
    trap - EXIT INT TERM
}

run() {
    local dir
    fetch
    dir=$(prepared "$1") || exit 1
    launch "$dir" "$2"
    trap 'kill_now "'"$dir"'"' EXIT
    await_ready "$dir" "$2"
    echo ready
    cat >/dev/null
}

gone_within() {
    local dir=$1
    for _ in $(seq "$(($2 * 20))"); do
        ! gone "$dir" || return 0
        sleep 0.05
    done
    return 1
}

kill_now() {
    ! running "$1" || kill -9 "$(cat "$1/seekdb.pid")" 2>/dev/null || true
    gone_within "$1" "$stop_seconds" || fail "it does not end after SIGKILL"
    rm -f "$1/seekdb.pid"
}

stop() {
    if running "$1"; then
        kill "$(cat "$1/seekdb.pid")" 2>/dev/null || true
        gone_within "$1" "$stop_seconds" || true
    fi
    kill_now "$1"
}

free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Runs a command as a process group of its own, to which a signal is passed on; whatever happens, the
# server is stopped and its data removed.
with() {
    local dir port child=0 status=0
    fetch
    port=$(free_port)
    dir=$(mktemp -d "${TMPDIR:-/tmp}/powercontext-seekdb.XXXXXX")
    trap 'kill_now "'"$dir"'"; rm -rf "'"$dir"'"' EXIT
    bash "${BASH_SOURCE[0]}" start "$dir" "$port"
    export POWERCONTEXT_TEST_OCEANBASE_URL="mysql://root@127.0.0.1:$port"
    set -m
    "$@" </dev/null &
    child=$!
    set +m
    trap 'kill -INT -- "-$child" 2>/dev/null || true; status=130' INT
    trap 'kill -TERM -- "-$child" 2>/dev/null || true; status=143' TERM
    while true; do
        # An interrupted wait returns before the command has ended: wait again.
        wait "$child" && ended=0 || ended=$?
        kill -0 "$child" 2>/dev/null || break
    done
    [ "$status" -ne 0 ] || status=$ended
    return "$status"
}

case "${1:-} $#" in
'fetch 1') fetch && echo "$program" ;;
'start 3') start "$2" "$3" ;;
'stop 2') stop "$2" ;;
'kill 2') kill_now "$2" ;;
'run 3') run "$2" "$3" ;;
'with '[2-9] | 'with '[1-9][0-9]) shift && with "$@" ;;
*) fail 'usage: seekdb.sh fetch | start DIR PORT | stop DIR | kill DIR | run DIR PORT | with COMMAND...' ;;
esac
