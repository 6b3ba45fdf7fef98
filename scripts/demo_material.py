"""Turns files of this repository into what the demo captures.

Decides what one Source is: a section of a document, a commit, a bundled note. Knows nothing of
the server; `demo.py` does the talking.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs")
MAX_COMMITS = 40
MAX_FILES_PER_COMMIT = 20
MIN_SECTION_CHARS = 120


@dataclass(frozen=True)
class Material:
    """One Source to be captured: a text, or a JSON record when `text` is None."""

    name: str
    text: str | None = None
    record: dict | None = None
    metadata: dict | None = None


def document_sections() -> list[Material]:
    """The documents of this repository, one Source per second-level section."""
    files = []
    for entry in DOCUMENTS:
        path = ROOT / entry
        files += sorted(path.rglob("*.md")) if path.is_dir() else [path]
    found = []
    for path in files:
        if path.is_file():
            found += _sections(path)
    return found


def _sections(path: Path) -> list[Material]:
    relative = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    title = text.partition("\n")[0].lstrip("# ").strip()
    sections = []
    for ordinal, part in enumerate(re.split(r"(?m)^(?=## )", text)):
        body = part.strip()
        if len(body) < MIN_SECTION_CHARS:
            continue
        metadata = {"path": relative, "document": title}
        sections.append(Material(f"doc/{relative}/{ordinal}", text=body, metadata=metadata))
    return sections


def commit_history() -> list[Material]:
    """The newest commits, oldest first, as JSON records; empty without git or without history."""
    try:
        log = subprocess.run(
            ["git", "-C", str(ROOT), "log", f"--max-count={MAX_COMMITS}", "--no-merges", "--name-only",
             "--date=short", "--format=%x1e%h%x1f%ad%x1f%s%x1f%b%x1f"],
            check=True, capture_output=True, encoding="utf-8", errors="replace", timeout=10,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    commits = []
    for entry in log.split("\x1e")[1:]:
        commit, date, subject, body, files = entry.split("\x1f", 4)
        names = files.split()
        record = {"commit": commit, "date": date, "subject": subject, "body": body.strip(),
                  "files": names[:MAX_FILES_PER_COMMIT], "files_changed": len(names)}
        commits.append(Material(f"commit/{commit}", record=record))
    return commits[::-1]


def notes(language: str) -> list[Material]:
    """The bundled notes of one language in the order in which they were written."""
    dated = []
    for path in sorted((ROOT / "examples" / "notes" / language).glob("*.md")):
        front, body = _front_matter(path.read_text(encoding="utf-8"))
        metadata = {"date": front["date"], "author": front["author"]}
        dated.append((front["date"], Material(f"note/{language}/{path.stem}", text=body, metadata=metadata)))
    return [material for _, material in sorted(dated, key=lambda pair: pair[0])]


def _front_matter(text: str) -> tuple[dict, str]:
    _, front, body = text.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front.strip().splitlines())
    return fields, body.strip()


if __name__ == "__main__":
    for group in (document_sections(), commit_history(), notes("en"), notes("zh")):
        print(len(group), json.dumps(group[0].__dict__, ensure_ascii=False)[:200] if group else "")
