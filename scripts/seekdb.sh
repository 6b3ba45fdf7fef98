#!/usr/bin/env bash
# Fetches and runs the single-node OceanBase engine (seekdb) for tests and demos; no containers.
#
#   scripts/seekdb.sh fetch             prints the program's path; needs the network the first time only
#   scripts/seekdb.sh start DIR PORT    starts it on its data folder, a new one or one used before;
#                                       returns once it takes connections
#   scripts/seekdb.sh stop DIR          stops the one that `start` started on this folder
#   scripts/seekdb.sh kill DIR          the same with SIGKILL, as a crash; `start` brings it back
#   scripts/seekdb.sh run DIR PORT      starts it, says `ready`, and kills it when standard input ends or
#                                       a signal comes, so that it never outlives whoever holds the other
#                                       end; one whose `run` was killed is ended by the next start on DIR
#   scripts/seekdb.sh with COMMAND...   runs a command with a server of its own on a free port, named in
#                                       POWERCONTEXT_TEST_OCEANBASE_URL, and removes it afterwards
#
# The user is `root` without a password: mysql://root@127.0.0.1:PORT/test. A process id stands in
# DIR/seekdb.pid, the server's own messages in DIR/seekdb.log, what this script ran into on
# standard error. One server runs on a folder: a second start on it is refused. PYTHON chooses the interpreter whose pip
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

# What a process started as and when, which together name it for good; fails when there is none.
fingerprint() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The name in brackets may hold anything; the time is the twentieth field behind it.
    stat=${stat##*) }
    # shellcheck disable=SC2086
    set -- "$1" $stat
    echo "$1 ${21}"
}

# Whether the process that was noted for this folder is a seekdb on this folder.
running() {
    local pid exe argument
    pid=$(cat "$1/seekdb.pid" 2>/dev/null) && [ -n "$pid" ] || return 1
    exe=$(readlink "/proc/$pid/exe" 2>/dev/null) || return 1
    exe=${exe% (deleted)}
    [ "${exe##*/}" = seekdb ] || return 1
    while IFS= read -r -d '' argument; do
        [ "$argument" != "$1/data" ] || return 0
    done 2>/dev/null <"/proc/$pid/cmdline"
    return 1
}

# Whether it holds nothing any more. A process that ends gives up its program before its port and the lock on
# its folder, so this waits until only its exit status is left.
gone() {
    local pid stat
    pid=$(cat "$1/seekdb.pid" 2>/dev/null) && [ -n "$pid" ] || return 0
    stat=$(cat "/proc/$pid/stat" 2>/dev/null) || return 0
    [[ "$stat" != "$pid (seekdb) "* || "$stat" == "$pid (seekdb) "[ZX]* ]]
}

# Whether the one who wanted the server of this folder to end with him was killed.
forsaken() {
    local holder
    holder=$(cat "$1/holder" 2>/dev/null) && [ -n "$holder" ] || return 1
    [ "$(fingerprint "${holder%% *}")" != "$holder" ]
}

# The server greets first, so a client that says nothing gets bytes as soon as it is ready.
greets() {
    local bytes
    bytes=$({ timeout 2 head -c 5 <"/dev/tcp/127.0.0.1/$1" | wc -c; } 2>/dev/null) || return 1
    [ "$bytes" -eq 5 ]
}

# One at a time launches or ends the server of a folder; the server itself does not hold the lock.
lock() {
    exec 8>"$1/lock"
    ! command -v flock >/dev/null 2>&1 || flock -w 60 8 || fail "another start or stop is under way on $1"
}

unlock() {
    exec 8>&-
}

end_on_signals() {
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# What is undone however this script ends: the server of this folder, a process, a folder.
owned=
reader=
scratch=
clean_up() {
    [ -z "$reader" ] || kill "$reader" 2>/dev/null || true
    [ -z "$owned" ] || kill_now "$owned"
    [ -z "$scratch" ] || rm -rf -- "$scratch"
}

# Starts the server in the background; returns once the new process is that program, so that `running`
# means what it says. A signal waits for that. The process notes its own id before it becomes the program
# and is its own group leader, so that a terminal's interrupt does not reach it. From the first moment on it is
# `owned`. `holder` is whom it must not outlive, if anyone.
launch() {
    local dir=$1 port=$2 holder=$3 pid caught=0
    lock "$dir"
    if running "$dir"; then
        forsaken "$dir" || fail "already running on $dir"
        echo "seekdb: ending the server that was left on $dir" >&2
        kill_now "$dir"
    fi
    ! greets "$port" || fail "port $port is in use"
    trap 'caught=129' HUP
    trap 'caught=130' INT
    trap 'caught=143' TERM
    owned=$dir
    echo "$holder" >"$dir/holder"
    set -m
    (
        trap - HUP INT TERM EXIT
        echo "$BASHPID" >"$dir/seekdb.pid"
        exec "$program" --nodaemon --base-dir "$dir/data" -P "$port" \
            --parameter "memory_limit=$memory_limit" --parameter datafile_size=1G \
            --parameter log_disk_size=3G >>"$dir/seekdb.log" 2>&1 </dev/null 8>&-
    ) &
    pid=$!
    set +m
    # Its end is looked at by `running` and `gone`; the shell has nothing to say about it.
    disown "$pid"
    until running "$dir" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.01 || true; done
    unlock
    end_on_signals
    [ "$caught" -eq 0 ] || exit "$caught"
}

await_ready() {
    local dir=$1 port=$2 deadline=$((SECONDS + start_seconds))
    until greets "$port"; do
        running "$dir" || fail "it ended while starting; see $dir/seekdb.log"
        [ "$SECONDS" -lt "$deadline" ] || fail "no connection on port $port after $start_seconds s"
        sleep 0.1
    done
}

# The folder as an absolute path, made if need be. Where the path has `.tmp` in it, the server takes its own
# log for a leftover and does not start again.
prepared() {
    local dir
    mkdir -p -- "$1"
    dir=$(cd -- "$1" && pwd -P)
    [[ "$dir" != *.tmp* ]] || fail "the path of the folder must not have \`.tmp\` in it: $dir"
    echo "$dir"
}

# A start that fails or is interrupted leaves nothing running.
start() {
    local dir port=$2
    fetch
    dir=$(prepared "$1") || exit 1
    launch "$dir" "$port" ''
    await_ready "$dir" "$port"
    owned=
}

run() {
    local dir
    fetch
    dir=$(prepared "$1") || exit 1
    launch "$dir" "$2" "$(fingerprint "$$")"
    await_ready "$dir" "$2"
    echo ready
    # In the background, so that a signal ends this script and not only the reading.
    exec 3<&0
    cat <&3 >/dev/null &
    reader=$!
    wait "$reader" || true
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
    rm -f -- "$1/seekdb.pid" "$1/holder"
}

# Ends the server of a folder, in order or as in a crash.
stop() {
    local dir
    [ -d "$1" ] || return 0
    dir=$(cd -- "$1" && pwd -P)
    lock "$dir"
    if [ "$2" = 'in order' ] && running "$dir"; then
        kill "$(cat "$dir/seekdb.pid")" 2>/dev/null || true
        gone_within "$dir" "$stop_seconds" || true
    fi
    kill_now "$dir"
}

free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Runs a command as a process group of its own, to which a signal is passed on; whatever happens, the
# server is stopped and its data removed.
with() {
    local dir port child status=0 ended
    fetch
    port=$(free_port)
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/powercontext-seekdb.XXXXXX")
    dir=$(prepared "$scratch") || exit 1
    launch "$dir" "$port" "$(fingerprint "$$")"
    await_ready "$dir" "$port"
    export POWERCONTEXT_TEST_OCEANBASE_URL="mysql://root@127.0.0.1:$port"
    set -m
    "$@" </dev/null &
    child=$!
    set +m
    trap 'kill -HUP -- "-$child" 2>/dev/null || true; status=129' HUP
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

trap clean_up EXIT
end_on_signals
case "${1:-} $#" in
'fetch 1') fetch && echo "$program" ;;
'start 3') start "$2" "$3" ;;
'stop 2') stop "$2" 'in order' ;;
'kill 2') stop "$2" 'at once' ;;
'run 3') run "$2" "$3" ;;
'with 1') fail 'with needs a command' ;;
'with '*) shift && with "$@" ;;
*) fail 'usage: seekdb.sh fetch | start DIR PORT | stop DIR | kill DIR | run DIR PORT | with COMMAND...' ;;
esac
