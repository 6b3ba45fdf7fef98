-- Scopes, the Source Journal, shared Artifact storage, Topic retrieval and processing state.
-- Texts that are identities compare by bytes (BINARY is SQLite's default collation).

CREATE TABLE pc_scopes (
    -- A small number that stands for the Scope inside full-text terms; never used again.
    scope_key INTEGER PRIMARY KEY AUTOINCREMENT,
    scope_id TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    summary TEXT NOT NULL,
    parent_scope_id TEXT REFERENCES pc_scopes (scope_id),
    version INTEGER NOT NULL CHECK (version >= 1),
    idempotency_key TEXT NOT NULL UNIQUE,
    creation_digest TEXT NOT NULL
);
CREATE INDEX pc_scopes_by_parent ON pc_scopes (parent_scope_id, scope_id);

CREATE TABLE pc_scope_context_references (
    scope_id TEXT NOT NULL REFERENCES pc_scopes (scope_id),
    referenced_scope_id TEXT NOT NULL REFERENCES pc_scopes (scope_id),
    PRIMARY KEY (scope_id, referenced_scope_id)
) WITHOUT ROWID;

CREATE TABLE pc_scope_external_references (
    scope_id TEXT NOT NULL REFERENCES pc_scopes (scope_id),
    ordinal INTEGER NOT NULL,
    kind TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (scope_id, ordinal)
) WITHOUT ROWID;

CREATE TABLE pc_default_scope (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    scope_id TEXT NOT NULL REFERENCES pc_scopes (scope_id)
);

-- One row per Scope, made with the Scope; whoever holds it hands out the next position.
CREATE TABLE pc_source_journals (
    scope_id TEXT PRIMARY KEY,
    head INTEGER NOT NULL CHECK (head >= 0)
) WITHOUT ROWID;

CREATE TABLE pc_sources (
    scope_id TEXT NOT NULL,
    position INTEGER NOT NULL CHECK (position >= 1),
    source_type TEXT NOT NULL,
    source_id TEXT NOT NULL,
    lineage_only INTEGER NOT NULL DEFAULT 0,
    content_digest TEXT NOT NULL,
    content TEXT NOT NULL,
    metadata TEXT,
    PRIMARY KEY (scope_id, position)
) WITHOUT ROWID;
CREATE UNIQUE INDEX pc_sources_by_id ON pc_sources (scope_id, source_type, source_id);

CREATE TABLE pc_source_cursors (
    scope_id TEXT NOT NULL,
    binding_name TEXT NOT NULL,
    position INTEGER NOT NULL CHECK (position >= 1),
    PRIMARY KEY (scope_id, binding_name)
) WITHOUT ROWID;

CREATE TABLE pc_artifact_processing_pending (
    binding_name TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    source_through INTEGER NOT NULL CHECK (source_through >= 1),
    flush_generation INTEGER NOT NULL DEFAULT 0 CHECK (flush_generation >= 0),
    handled_flush_generation INTEGER NOT NULL DEFAULT 0 CHECK (handled_flush_generation >= 0),
    CHECK (handled_flush_generation <= flush_generation),
    PRIMARY KEY (binding_name, scope_id)
) WITHOUT ROWID;
CREATE INDEX pc_artifact_processing_pending_asked
    ON pc_artifact_processing_pending (binding_name, scope_id)
    WHERE handled_flush_generation < flush_generation;

CREATE TABLE pc_artifact_processing_leases (
    supervisor_group TEXT PRIMARY KEY,
    holder_id TEXT NOT NULL,
    supervisor_generation INTEGER NOT NULL CHECK (supervisor_generation >= 1),
    lease_expires_at TEXT
) WITHOUT ROWID;

CREATE TABLE pc_topic_memory_work_budgets (
    scope_id TEXT NOT NULL,
    binding_name TEXT NOT NULL,
    source_after INTEGER NOT NULL CHECK (source_after >= 0),
    source_through INTEGER NOT NULL,
    attempt_id TEXT NOT NULL,
    attempts INTEGER NOT NULL CHECK (attempts BETWEEN 1 AND 3),
    reserved_requests INTEGER NOT NULL DEFAULT 0 CHECK (reserved_requests BETWEEN 0 AND 512),
    reserved_tokens INTEGER NOT NULL DEFAULT 0 CHECK (reserved_tokens BETWEEN 0 AND 64000000),
    failure_code TEXT CHECK (length(failure_code) <= 64),
    CHECK (source_through > source_after),
    PRIMARY KEY (scope_id, binding_name, source_after)
) WITHOUT ROWID;

CREATE TABLE pc_artifacts (
    scope_id TEXT NOT NULL,
    family TEXT NOT NULL,
    artifact_id TEXT NOT NULL,
    revision INTEGER NOT NULL CHECK (revision >= 1),
    content TEXT NOT NULL,
    PRIMARY KEY (scope_id, family, artifact_id, revision)
) WITHOUT ROWID;

CREATE TABLE pc_artifact_heads (
    scope_id TEXT NOT NULL,
    family TEXT NOT NULL,
    artifact_id TEXT NOT NULL,
    revision INTEGER NOT NULL CHECK (revision >= 1),
    PRIMARY KEY (scope_id, family, artifact_id)
) WITHOUT ROWID;

CREATE TABLE pc_artifact_lineage_sources (
    scope_id TEXT NOT NULL,
    family TEXT NOT NULL,
    artifact_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    source_type TEXT NOT NULL,
    source_id TEXT NOT NULL,
    PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal)
) WITHOUT ROWID;

CREATE TABLE pc_artifact_lineage_artifacts (
    scope_id TEXT NOT NULL,
    family TEXT NOT NULL,
    artifact_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    based_on_family TEXT NOT NULL,
    based_on_artifact_id TEXT NOT NULL,
    based_on_revision INTEGER NOT NULL,
    PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal)
) WITHOUT ROWID;

CREATE TABLE pc_topic_memory_revision_publications (
    scope_id TEXT NOT NULL,
    artifact_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    published_at TEXT NOT NULL,
    PRIMARY KEY (scope_id, artifact_id, revision)
) WITHOUT ROWID;

CREATE TABLE pc_topic_memory_retrieval_shape (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    shape TEXT NOT NULL CHECK (shape IN ('fts', 'hybrid')),
    embedding_fingerprint TEXT,
    -- What the stored terms and chunks were made by; other versions would not find them.
    analyzer_version INTEGER NOT NULL,
    chunk_policy_version INTEGER NOT NULL
);

-- What a search ranks by: how many active records the Scope has.
CREATE TABLE pc_topic_memory_scope_statistics (
    scope_id TEXT PRIMARY KEY,
    topics INTEGER NOT NULL CHECK (topics >= 0),
    chunks INTEGER NOT NULL CHECK (chunks >= 0)
) WITHOUT ROWID;

-- An FTS5 row is found by an integer, so these two tables are keyed by one instead of by Scope.
CREATE TABLE pc_topic_memory_active_topics (
    topic_key INTEGER PRIMARY KEY,
    scope_id TEXT NOT NULL,
    artifact_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    title TEXT NOT NULL,
    summary TEXT NOT NULL,
    source_count INTEGER NOT NULL,
    terms TEXT NOT NULL,
    UNIQUE (scope_id, artifact_id)
);

-- chunk_key = topic_key * 1048576 + ordinal, so the chunks of one Topic are one range.
CREATE TABLE pc_topic_memory_active_chunks (
    chunk_key INTEGER PRIMARY KEY,
    scope_id TEXT NOT NULL,
    artifact_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    ordinal INTEGER NOT NULL CHECK (ordinal BETWEEN 0 AND 1048575),
    body_position INTEGER NOT NULL,
    body TEXT NOT NULL,
    terms TEXT NOT NULL
);

-- Posting lists alone. Every term carries its Scope's key, so a list never crosses Scopes; the
-- tokenizer splits at spaces and control characters only, whatever else the analyzer yields.
CREATE VIRTUAL TABLE pc_topic_memory_topic_fts USING fts5 (
    terms, content = '', contentless_delete = 1, detail = 'none',
    tokenize = 'ascii tokenchars ''!"#$%&''''()*+,-./:;<=>?@[\]^_`{|}~'''
);
CREATE VIRTUAL TABLE pc_topic_memory_chunk_fts USING fts5 (
    terms, content = '', contentless_delete = 1, detail = 'none',
    tokenize = 'ascii tokenchars ''!"#$%&''''()*+,-./:;<=>?@[\]^_`{|}~'''
);
