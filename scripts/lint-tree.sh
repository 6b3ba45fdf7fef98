#!/usr/bin/env bash
# House rules that no compiler checks: file length, leftover marks, documented settings, notes.
# Prints every breach and ends with status 1 if there was one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

max_lines=500
breaches=0

breach() {
    printf 'lint-tree: %s\n' "$1" >&2
    breaches=$((breaches + 1))
}

# The files of the tree: what git tracks or would track, or everything outside target/ without git.
files() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@"
    else
        local pattern
        for pattern in "$@"; do find . -name "$pattern" -not -path './target/*' -type f; done
    fi
}

while IFS= read -r file; do
    [ -f "$file" ] || continue
    lines=$(wc -l <"$file")
    [ "$lines" -le "$max_lines" ] || breach "$file has $lines lines, more than $max_lines"
done < <(files '*.rs' '*.py' '*.sh' '*.sql')

# The marks are written with a gap so that this file does not find itself.
marks="\\b(TO""DO|FIX""ME|XX""X)\\b|\\b(to""do|unimple""mented|d""bg)!\\("
while IFS= read -r hit; do
    breach "leftover mark: $hit"
done < <(files '*.rs' '*.py' '*.sh' '*.sql' '*.toml' | tr '\n' '\0' | xargs -0 grep -nE "$marks" /dev/null || true)

# Every setting of the table stands in the documentation under its environment name.
table=crates/settings/src/table.rs
while read -r section key; do
    name=$(printf 'POWERCONTEXT_SERVER_%s_%s' "$section" "$key" | tr '[:lower:]' '[:upper:]')
    grep -q "\`$name\`" docs/configuration.md || breach "$name is missing in docs/configuration.md"
done < <(tr -d '\n' <"$table" \
    | grep -oE '\("[a-z]+", "[a-z_]+"\)|section: "[a-z]+", +key: "[a-z_]+"' \
    | grep -oE '"[a-z_]+"' | tr -d '"' | paste -d ' ' - - | sort -u)

# Every event that is logged stands in the documentation.
while IFS= read -r event; do
    grep -q "\`$event\`" docs/operations.md || breach "the event $event is missing in docs/operations.md"
done < <(files 'api-server/src/*.rs' 'controller/src/*.rs' 'worker/src/*.rs' 'crates/*/src/*.rs' | tr '\n' '\0' \
    | xargs -0 cat | tr -d '\n' \
    | grep -oE 'event = "[a-z._]+"|tell!\([^"]*"[a-z_]+"|set_back!\([^"]*"[a-z_]+"' \
    | grep -oE '"[a-z._]+"$' | tr -d '"' | sort -u)

# Every bundled note has its front matter and a readable length.
while IFS= read -r note; do
    head -n 5 "$note" | tr '\n' ' ' \
        | grep -qE '^--- subject: [a-z-]+ date: [0-9]{4}-[0-9]{2}-[0-9]{2} author: [^ ].* --- $' \
        || breach "$note has no front matter of subject, date, author"
done < <(files 'examples/notes/*.md' | grep '/notes/.*/' || true)

[ "$breaches" -eq 0 ] || exit 1
echo "lint-tree: passed"
