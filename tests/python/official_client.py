"""The main job through the official PowerContext client: capture, flush, search, exact read.

Usage: official_client.py BASE_URL

Prints one line per operation and `N passed, N failed`; exits with 1 when one failed. Operations
after a failed one cannot run and count as failed, too.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Awaitable, Callable

from powercontext.client import PowerContextClient
from powercontext.http import (
    CreateScopeRequest,
    CreateSourceRequest,
    FlushTopicMemoryRequest,
    FlushTopicMemoryResponse,
    GetTopicMemoryRequest,
    ListSourcesRequest,
    ScopeDescriptor,
    SearchTopicMemoryHit,
    SearchTopicMemoryRequest,
    SearchTopicMemoryResponse,
    SourcePage,
    SourceRecord,
    TopicMemoryArtifact,
    TopicMemoryFlushStatus,
)

TEXTS = [
    "The harbour lighthouse was repaired in March. Its new lamp turns once in ten seconds.",
    "The lighthouse keeper checks the lamp of the harbour lighthouse every evening at dusk.",
    "During a storm the harbour lighthouse lamp is backed by a diesel generator.",
]
QUERY = "harbour lighthouse lamp"
#: How often a search asks whether the Topic is there, and the pause between two searches.
SEARCHES, PAUSE_SECONDS = 600, 0.1


class MainJob:
    """The operations in order; each hands what it learned to the next one."""

    def __init__(self, client: PowerContextClient) -> None:
        self.client = client
        self.scope_id = ""
        self.source_ids: list[str] = []
        self.hit: SearchTopicMemoryHit | None = None

    async def create_scope(self) -> str:
        scope = await self.client.create_scope(
            CreateScopeRequest(title="Harbour", summary="Notes of the harbour.", idempotency_key=uuid.uuid4().hex)
        )
        assert isinstance(scope, ScopeDescriptor)
        assert (scope.title, scope.parent_scope_id, scope.version) == ("Harbour", None, 1)
        assert scope.context_references == [] and scope.external_references == []
        self.scope_id = scope.scope_id
        return scope.scope_id

    async def create_source(self) -> str:
        for position, text in enumerate(TEXTS, 1):
            source = await self.client.create_source(self.scope_id, CreateSourceRequest(content=text))
            assert isinstance(source, SourceRecord)
            assert (source.scope_id, source.content, source.position) == (self.scope_id, text, position)
            assert source.content_digest.startswith("sha256:")
            self.source_ids.append(source.source_id)
        assert len(set(self.source_ids)) == len(TEXTS)
        return f"{len(self.source_ids)} sources"

    async def list_sources(self) -> str:
        first = await self.client.list_sources(self.scope_id, ListSourcesRequest(limit=2))
        assert isinstance(first, SourcePage)
        assert first.next_cursor, "a page that is not the last has a cursor"
        rest = await self.client.list_sources(self.scope_id, ListSourcesRequest(limit=2, cursor=first.next_cursor))
        assert rest.next_cursor is None
        items = [*first.items, *rest.items]
        assert [item.source_id for item in items] == self.source_ids
        assert [item.content for item in items] == TEXTS
        return f"{len(items)} sources in 2 pages"

    async def flush_topic_memory(self) -> str:
        answer = await self.client.flush_topic_memory(FlushTopicMemoryRequest(scope_id=self.scope_id))
        assert isinstance(answer, FlushTopicMemoryResponse)
        assert answer.status is TopicMemoryFlushStatus.ACCEPTED, answer.status
        return answer.status.value

    async def search_topic_memory(self) -> str:
        request = SearchTopicMemoryRequest(scope_id=self.scope_id, query=QUERY)
        for _ in range(SEARCHES):
            answer = await self.client.search_topic_memory(request)
            assert isinstance(answer, SearchTopicMemoryResponse)
            assert answer.mode.value == "fts", answer.mode
            if answer.hits:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        assert answer.hits, f"no Topic after {SEARCHES} searches"
        best = answer.hits[0]
        assert isinstance(best, SearchTopicMemoryHit)
        assert best.artifact.family == "topic-memory" and best.artifact.revision >= 1
        assert best.title.strip() and best.summary.strip() and best.matched_by
        assert 0 < best.score <= 100
        scores = [hit.score for hit in answer.hits]
        assert scores == sorted(scores, reverse=True)
        self.hit = best
        return f"{best.artifact.artifact_id} revision {best.artifact.revision}"

    async def get_topic_memory(self) -> str:
        assert self.hit is not None
        topic = await self.client.get_topic_memory(
            GetTopicMemoryRequest(scope_id=self.scope_id, artifact=self.hit.artifact)
        )
        assert isinstance(topic, TopicMemoryArtifact)
        assert topic.artifact == self.hit.artifact
        assert (topic.title, topic.summary) == (self.hit.title, self.hit.summary)
        assert topic.detail.strip()
        cited = [source.source_id for source in topic.source_refs]
        assert cited and len(set(cited)) == len(cited) and set(cited) <= set(self.source_ids), cited
        assert {source.name for source in topic.source_refs} == {"content"}
        return f"cites {len(cited)} of {len(self.source_ids)} sources"


async def run(base_url: str) -> int:
    passed = failed = 0
    async with PowerContextClient(base_url, timeout=30.0) as client:
        job = MainJob(client)
        operations: list[Callable[[], Awaitable[str]]] = [
            job.create_scope,
            job.create_source,
            job.list_sources,
            job.flush_topic_memory,
            job.search_topic_memory,
            job.get_topic_memory,
        ]
        for operation in operations:
            name = operation.__name__
            if failed:
                failed += 1
                print(f"FAIL {name}: not run after a failure")
                continue
            try:
                print(f"ok   {name}: {await operation()}")
                passed += 1
            except Exception as problem:  # every failure is a result to report
                failed += 1
                print(f"FAIL {name}: {type(problem).__name__}: {problem}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(asyncio.run(run(sys.argv[1])))
