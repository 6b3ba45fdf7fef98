"""`make demo`: the whole way of a Source, on one machine, with a scratch database.

Starts the product, captures real text, waits until every Window is processed, and reads back what
came of it. Standard library only. DATABASE=oceanbase takes an OceanBase engine instead of a SQLite
file; KEEP=1 leaves everything running.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
import time
import unicodedata
from dataclasses import dataclass, field

import demo_material as material
from demo_server import Failure, Server, complain_about_missing_programs

PROCESS_SECONDS = 120
TTY = sys.stdout.isatty()
WIDTH = min(shutil.get_terminal_size((110, 24)).columns, 120)


@dataclass
class Scope:
    """One Scope of the demo with what was captured into it."""

    title: str
    summary: str
    sources: list
    scope_id: str = ""
    topics: list = field(default_factory=list)


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
        done = server.database.rows("SELECT coalesce(sum(position), 0) FROM pc_source_cursors")[0][0]
        bar.show(min(done, total), server.windows())
        if done >= total and all(flush(server, scope) == "idle" for scope in scopes):
            return server.windows()
        closed = server.closed_frontier()
        if closed or time.monotonic() > deadline:
            why = f"a Window failed for good ({closed})" if closed else "processing took too long"
            raise Failure(f"{why}: {done} of {total} Sources processed")
        time.sleep(0.1)


def read_topics(server: Server, scope: Scope) -> None:
    """Which Topics there are comes from the database; what they say comes from the server."""
    heads = server.database.rows("SELECT artifact_id, revision FROM pc_artifact_heads "
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
The server keeps running at {server.url}, process {server.processes[0].pid}, folder {server.folder}

  curl -s {server.url}/health/ready
  curl -s {server.url}/v1/scopes
  curl -s {server.url}/v1/topic-memory/search -H 'content-type: application/json' -d '{body}'
  curl -s {server.url}/v1/topic-memory/get -H 'content-type: application/json' -d '{exact}'

Stop it and remove its data:  {server.how_to_stop()}
""")


def run(server: Server, keep: bool) -> None:
    scopes = [
        Scope("This repository", "Documents by section and the commit history.",
              material.document_sections() + material.commit_history()),
        Scope("Engineering notes", "Incident reviews, decisions and measurements of a product team.",
              material.notes("en")),
        Scope("工程笔记", "故障复盘、技术决定和测量结果。", material.notes("zh")),
    ]
    server.start()
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
    database = os.environ.get("DATABASE") or "sqlite"
    if database not in ("sqlite", "oceanbase"):
        print(f"demo: DATABASE must be sqlite or oceanbase, not `{database}`", file=sys.stderr)
        return 2
    if complain_about_missing_programs(database):
        return 1
    server = Server(keep, database)
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


if __name__ == "__main__":
    sys.exit(main())
