"""`make demo`: the whole way of a Source, on one machine, with a scratch database.

Starts the server, captures real text, waits until every Window is processed, and reads back what
came of it. Standard library only. KEEP=1 leaves the server running.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import unicodedata
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import demo_material as material

BIN = Path(os.environ.get("CARGO_TARGET_DIR", material.ROOT / "target")) / "release"
READY_SECONDS = 15
PROCESS_SECONDS = 50
REQUEST_SECONDS = 10
TTY = sys.stdout.isatty()
WIDTH = min(shutil.get_terminal_size((110, 24)).columns, 120)


class Failure(Exception):
    """The demo cannot go on; the text says why."""


@dataclass
class Scope:
    """One Scope of the demo with what was captured into it."""

    title: str
    summary: str
    sources: list
    scope_id: str = ""
    topics: list = field(default_factory=list)


class Server:
    """A `--role all` server over a scratch SQLite file."""

    def __init__(self, keep: bool):
        self.folder = Path(tempfile.mkdtemp(prefix="powercontext-demo-"))
        self.database = self.folder / "powercontext.sqlite3"
        self.log = self.folder / "server.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("POWERCONTEXT_SERVER_")}
        environment |= {
            "POWERCONTEXT_SERVER_HTTP_HOST": "127.0.0.1",
            "POWERCONTEXT_SERVER_HTTP_PORT": str(port),
            "POWERCONTEXT_SERVER_DATABASE_URL": f"sqlite://{self.database}",
            "POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL": "builtin:extractive",
            "POWERCONTEXT_SERVER_LOG_FORMAT": "json",
            "POWERCONTEXT_SERVER_LOG_LEVEL": "info",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [BIN / "powercontext-api-server", "--role", "all"],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=keep,
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            self.check_alive()
            try:
                if self.call("GET", "/health/ready")["status"] == "ready":
                    return
            except (OSError, Failure):
                pass
            time.sleep(0.05)
        raise Failure(f"the server did not become ready within {READY_SECONDS} seconds")

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            raise Failure(f"the server ended with status {self.process.returncode}")

    def call(self, method: str, path: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body, ensure_ascii=False).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace")
            raise Failure(f"{method} {path} answered {error.code}: {said}") from None

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def log_tail(self, lines: int = 20) -> str:
        """The newest log lines, answered requests apart."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join([line for line in text.splitlines() if '"http.request"' not in line][-lines:])


class Progress:
    """One bar on a terminal; a line every 25% elsewhere."""

    def __init__(self, total: int):
        self.total = total
        self.said = -1

    def show(self, done: int, windows: int) -> None:
        share = done / self.total
        if TTY:
            filled = round(share * 40)
            print(f"\r  [{'#' * filled}{'.' * (40 - filled)}] {done}/{self.total} Sources, {windows} Windows ",
                  end="\n" if done == self.total else "", flush=True)
        elif int(share * 4) > self.said:
            self.said = int(share * 4)
            print(f"  {done}/{self.total} Sources processed, {windows} Windows", flush=True)


def rows(server: Server, sql: str, *values) -> list:
    """Rows of the database file, opened read-only."""
    connection = sqlite3.connect(f"file:{server.database}?mode=ro", uri=True, timeout=5)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def capture(server: Server, scope: Scope) -> None:
    created = server.call("POST", "/v1/scopes", {
        "title": scope.title, "summary": scope.summary, "idempotency_key": f"demo-{scope.title}"})
    scope.scope_id = created["scope_id"]
    for source in scope.sources:
        if source.text is None:
            server.call("POST", f"/v1/scopes/{scope.scope_id}/sources", {"content": source.record})
        else:
            server.call("POST", "/v1/sources/content", {
                "scope_id": scope.scope_id, "source_id": source.name, "content": source.text,
                "metadata": source.metadata})
    print(f"  {scope.title}: {len(scope.sources)} Sources")


def flush(server: Server, scope: Scope) -> str:
    return server.call("POST", "/v1/topic-memory/flush", {"scope_id": scope.scope_id})["status"]


def process(server: Server, scopes: list[Scope]) -> int:
    """Flushes every Scope, watches the Cursors, and returns how many Windows were published."""
    for scope in scopes:
        flush(server, scope)
    total = sum(len(scope.sources) for scope in scopes)
    bar = Progress(total)
    deadline = time.monotonic() + PROCESS_SECONDS
    while True:
        server.check_alive()
        done = rows(server, "SELECT coalesce(sum(position), 0) FROM pc_source_cursors")[0][0]
        bar.show(min(done, total), windows(server))
        if done >= total and all(flush(server, scope) == "idle" for scope in scopes):
            return windows(server)
        closed = closed_frontier(server)
        if closed or time.monotonic() > deadline:
            why = f"a Window failed for good ({closed})" if closed else "processing took too long"
            raise Failure(f"{why}: {done} of {total} Sources processed")
        time.sleep(0.1)


def windows(server: Server) -> int:
    """Windows published so far, counted from the server's structured log."""
    count = 0
    with server.log.open(encoding="utf-8", errors="replace") as log:
        for line in log:
            count += '"window_published"' in line
    return count


def closed_frontier(server: Server) -> str | None:
    """The code of a frontier the server closed, from its structured log; `None` while all go on."""
    with server.log.open(encoding="utf-8", errors="replace") as log:
        for line in log:
            if '"frontier_terminal"' in line:
                try:
                    return json.loads(line).get("error_code") or "no code"
                except ValueError:
                    return None  # the line is still being written
    return None


def read_topics(server: Server, scope: Scope) -> None:
    """Which Topics there are comes from the database; what they say comes from the server."""
    heads = rows(server, "SELECT artifact_id, revision FROM pc_artifact_heads "
                         "WHERE scope_id = ? AND family = 'topic-memory'", scope.scope_id)
    for artifact_id, revision in heads:
        topic = read_topic(server, scope, artifact_id, revision)
        evidence = {source["source_id"] for source in topic["source_refs"]}
        for older in range(1, revision):
            earlier = read_topic(server, scope, artifact_id, older)
            evidence |= {source["source_id"] for source in earlier["source_refs"]}
        scope.topics.append((len(evidence), topic))
    scope.topics.sort(key=lambda pair: (-pair[1]["artifact"]["revision"], -pair[0], pair[1]["title"]))


def read_topic(server: Server, scope: Scope, artifact_id: str, revision: int) -> dict:
    artifact = {"family": "topic-memory", "artifact_id": artifact_id, "revision": revision}
    return server.call("POST", "/v1/topic-memory/get", {"scope_id": scope.scope_id, "artifact": artifact})


def columns(text: str) -> int:
    """Terminal columns of a text: wide East Asian characters take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def cut(text: str, limit: int) -> str:
    """The text on one line of at most `limit` columns, cut ends marked."""
    text = " ".join(text.split())
    if columns(text) <= limit:
        return text
    while columns(text) > limit - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def around(text: str, query: str, limit: int) -> str:
    """The part of a snippet near the first word or pair of characters of the query that it has."""
    text = " ".join(text.split())
    words = [query] + [word for word in query.split() if len(word) > 3]
    words += [query[at:at + 2] for at in range(len(query) - 1) if columns(query[at:at + 2]) == 4]
    places = [text.lower().find(word.lower()) for word in words]
    place = next((place for place in places if place >= 0), 0)
    start = max(0, place - limit // 5)
    return cut(("…" if start else "") + text[start:], limit)


def show_topics(scope: Scope) -> None:
    print(f"\nTopics of \"{scope.title}\" ({len(scope.topics)} from {len(scope.sources)} Sources)")
    shown = scope.topics[:12]
    for evidence, topic in shown:
        revision = topic["artifact"]["revision"]
        title = cut(topic["title"], WIDTH - 36)
        dots = " " * max(1, WIDTH - 34 - columns(title))
        print(f"  {title}{dots}revision {revision:>2}, {evidence:>2} Sources")
        print(f"      {cut(topic['summary'], WIDTH - 8)}")
    if len(scope.topics) > len(shown):
        print(f"  ... and {len(scope.topics) - len(shown)} more")


def show_search(server: Server, scope: Scope, query: str) -> dict:
    answer = server.call("POST", "/v1/topic-memory/search",
                         {"scope_id": scope.scope_id, "query": query, "limit": 3})
    print(f"\nSearch in \"{scope.title}\": {query}")
    if not answer["hits"]:
        raise Failure(f"the search for `{query}` found nothing")
    for hit in answer["hits"]:
        print(f"  {hit['score']:5.1f}  {cut(hit['title'], WIDTH - 12)}  ({', '.join(hit['matched_by'])})")
        if hit["snippet"]:
            print(f"         {around(hit['snippet'], query, WIDTH - 12)}")
    return answer["hits"][0]


def show_exact(server: Server, scope: Scope, hit: dict) -> None:
    artifact = hit["artifact"]
    topic = read_topic(server, scope, artifact["artifact_id"], artifact["revision"])
    print(f"\nExact read: {artifact['artifact_id']} at revision {artifact['revision']}")
    print(f"  title    {cut(topic['title'], WIDTH - 12)}")
    print(f"  summary  {cut(topic['summary'], WIDTH - 12)}")
    print(f"  detail   {len(topic['detail'])} characters: {cut(topic['detail'], WIDTH - 36)}")
    for source in topic["source_refs"]:
        print(f"  source   {source['name']}/{source['source_id']}")


def show_keep(server: Server, scope: Scope) -> None:
    body = json.dumps({"scope_id": scope.scope_id, "query": "connection pool"})
    artifact = scope.topics[0][1]["artifact"]
    exact = json.dumps({"scope_id": scope.scope_id, "artifact": artifact})
    print(f"""
The server keeps running at {server.url}, process {server.process.pid}, folder {server.folder}

  curl -s {server.url}/health/ready
  curl -s {server.url}/v1/scopes
  curl -s {server.url}/v1/topic-memory/search -H 'content-type: application/json' -d '{body}'
  curl -s {server.url}/v1/topic-memory/get -H 'content-type: application/json' -d '{exact}'

Stop it and remove its data:  kill {server.process.pid} && rm -r {server.folder}
""")


def run(server: Server, keep: bool) -> None:
    scopes = [
        Scope("This repository", "Documents by section and the commit history.",
              material.document_sections() + material.commit_history()),
        Scope("Engineering notes", "Incident reviews, decisions and measurements of a product team.",
              material.notes("en")),
        Scope("工程笔记", "故障复盘、技术决定和测量结果。", material.notes("zh")),
    ]
    server.wait_ready()
    print(f"Server ready at {server.url}. Capturing:")
    for scope in scopes:
        capture(server, scope)
    print("Processing, one worker process per Window:")
    window_count = process(server, scopes)
    for scope in scopes:
        read_topics(server, scope)
        show_topics(scope)
    _, english, chinese = scopes
    show_search(server, english, "why did connections run out in the orders pool")
    hit = show_search(server, chinese, "消息积压")
    show_exact(server, chinese, hit)
    if keep:
        show_keep(server, english)
    topics = sum(len(scope.topics) for scope in scopes)
    sources = sum(len(scope.sources) for scope in scopes)
    print(f"\ndemo: {topics} topics from {sources} sources in {window_count} windows")


def main() -> int:
    keep = os.environ.get("KEEP", "") not in ("", "0")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not (BIN / "powercontext-api-server").exists():
        print(f"demo: {BIN}/powercontext-api-server is missing; run `make demo`", file=sys.stderr)
        return 1
    server = Server(keep)
    finished = False
    try:
        run(server, keep)
        finished = True
        return 0
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return 130
    except (Failure, OSError, sqlite3.Error, KeyError, ValueError) as error:
        print(f"\ndemo: {error}\n--- end of the server's log ---\n{server.log_tail()}", file=sys.stderr)
        return 1
    finally:
        if not (finished and keep):
            server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
