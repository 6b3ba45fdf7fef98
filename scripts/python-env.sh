#!/usr/bin/env bash
# Prepares a cached Python with the official PowerContext client and prints its interpreter.
#
# Says nothing else when all is well, does nothing when it is there already, and fails with one line.
# PYTHON chooses the interpreter to build from (3.11 or newer; `python3` by default).
set -euo pipefail

requirement='powercontext[client]==1.1.0'
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache="$root/.cache"
environment="$cache/python"
python=${PYTHON:-python3}

fail() {
    echo "python-env: $1" >&2
    exit 1
}

# The marker is written last, inside a folder that is renamed into place when it is complete.
if [[ "$(cat "$environment/requirement" 2>/dev/null)" == "$requirement" ]]; then
    echo "$environment/bin/python"
    exit 0
fi

command -v "$python" >/dev/null 2>&1 || fail "\`$python\` was not found; install Python 3.11 or newer, or set PYTHON"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "\`$python\` is older than Python 3.11; set PYTHON to a newer one"

mkdir -p "$cache"
build=$(mktemp -d "$cache/python-build.XXXXXX")
trap 'rm -rf "$build"' EXIT
"$python" -m venv "$build/python" >"$build/log" 2>&1 ||
    fail "cannot create a virtual environment (on Debian and Ubuntu install python3-venv): $(tail -n 1 "$build/log")"
"$build/python/bin/python" -m pip install --quiet --disable-pip-version-check "$requirement" >"$build/log" 2>&1 ||
    fail "cannot install $requirement: $(grep -m 1 -i error "$build/log" || tail -n 1 "$build/log")"
"$build/python/bin/python" -c 'import powercontext.client' >"$build/log" 2>&1 ||
    fail "the installed client cannot be imported: $(tail -n 1 "$build/log")"
echo "$requirement" >"$build/python/requirement"

# Another run may have been faster; its result is as good.
if [[ "$(cat "$environment/requirement" 2>/dev/null)" != "$requirement" ]]; then
    rm -rf "$environment"
    mv "$build/python" "$environment"
fi
echo "$environment/bin/python"
