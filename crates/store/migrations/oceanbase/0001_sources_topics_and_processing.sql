-- Scopes, the Source Journal, shared Artifact storage, Topic retrieval and processing state.
--
-- The same tables as in the SQLite file of this number, for OceanBase. Every text compares by bytes
-- (utf8mb4_bin). Rows of a Scope are keyed by it first and partitioned by it, so that one Scope's
-- work stays on one partition. There are no foreign keys: a Scope is never removed, and they would
-- take locks outside of the fixed order. Definitions commit one by one, so each can be repeated.

-- Not partitioned: creation looks it up by idempotency key, across all Scopes.
CREATE TABLE IF NOT EXISTS pc_scopes (
    scope_id VARCHAR(256) NOT NULL,
    -- A small number that stands for the Scope inside full-text terms; never used again.
    scope_key BIGINT NOT NULL AUTO_INCREMENT,
    title LONGTEXT NOT NULL,
    summary LONGTEXT NOT NULL,
    parent_scope_id VARCHAR(256),
    version BIGINT NOT NULL CHECK (version >= 1),
    idempotency_key VARCHAR(512) NOT NULL,
    creation_digest VARCHAR(128) NOT NULL,
    PRIMARY KEY (scope_id),
    UNIQUE KEY pc_scopes_by_scope_key (scope_key),
    UNIQUE KEY pc_scopes_by_idempotency_key (idempotency_key),
    KEY pc_scopes_by_parent (parent_scope_id, scope_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS pc_scope_context_references (
    scope_id VARCHAR(256) NOT NULL,
    referenced_scope_id VARCHAR(256) NOT NULL,
    PRIMARY KEY (scope_id, referenced_scope_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

CREATE TABLE IF NOT EXISTS pc_scope_external_references (
    scope_id VARCHAR(256) NOT NULL,
    ordinal BIGINT NOT NULL,
    kind LONGTEXT NOT NULL,
    value LONGTEXT NOT NULL,
    PRIMARY KEY (scope_id, ordinal)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

CREATE TABLE IF NOT EXISTS pc_default_scope (
    singleton BIGINT NOT NULL CHECK (singleton = 1),
    scope_id VARCHAR(256) NOT NULL,
    PRIMARY KEY (singleton)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row per Scope, made with the Scope; whoever holds it hands out the next position.
CREATE TABLE IF NOT EXISTS pc_source_journals (
    scope_id VARCHAR(256) NOT NULL,
    head BIGINT NOT NULL CHECK (head >= 0),
    PRIMARY KEY (scope_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

CREATE TABLE IF NOT EXISTS pc_sources (
    scope_id VARCHAR(256) NOT NULL,
    position BIGINT NOT NULL CHECK (position >= 1),
    source_type VARCHAR(256) NOT NULL,
    source_id VARCHAR(256) NOT NULL,
    lineage_only BIGINT NOT NULL DEFAULT 0,
    content_digest VARCHAR(128) NOT NULL,
    content LONGTEXT NOT NULL,
    metadata LONGTEXT,
    PRIMARY KEY (scope_id, position),
    UNIQUE KEY pc_sources_by_id (scope_id, source_type, source_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

CREATE TABLE IF NOT EXISTS pc_source_cursors (
    scope_id VARCHAR(256) NOT NULL,
    binding_name VARCHAR(256) NOT NULL,
    position BIGINT NOT NULL CHECK (position >= 1),
    PRIMARY KEY (scope_id, binding_name)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

-- Not partitioned: the supervisor reads it page by page in key order over all Scopes. With partitions each
-- page is a parallel query over all of them, and a wave's removal touches all of them.
CREATE TABLE IF NOT EXISTS pc_artifact_processing_pending (
    binding_name VARCHAR(128) NOT NULL,
    scope_id VARCHAR(256) NOT NULL,
    source_through BIGINT NOT NULL CHECK (source_through >= 1),
    flush_generation BIGINT NOT NULL DEFAULT 0 CHECK (flush_generation >= 0),
    handled_flush_generation BIGINT NOT NULL DEFAULT 0 CHECK (handled_flush_generation >= 0),
    -- Stands in for a partial index: 1 while a flush is not answered.
    asked TINYINT GENERATED ALWAYS AS (handled_flush_generation < flush_generation) STORED,
    CHECK (handled_flush_generation <= flush_generation),
    PRIMARY KEY (binding_name, scope_id),
    KEY pc_artifact_processing_pending_asked (asked, binding_name, scope_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Written and compared with utc_timestamp(6) in sessions whose time zone is UTC.
CREATE TABLE IF NOT EXISTS pc_artifact_processing_leases (
    supervisor_group VARCHAR(256) NOT NULL,
    holder_id VARCHAR(256) NOT NULL,
    supervisor_generation BIGINT NOT NULL CHECK (supervisor_generation >= 1),
    lease_expires_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    PRIMARY KEY (supervisor_group)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS pc_topic_memory_work_budgets (
    scope_id VARCHAR(256) NOT NULL,
    binding_name VARCHAR(256) NOT NULL,
    source_after BIGINT NOT NULL CHECK (source_after >= 0),
    source_through BIGINT NOT NULL,
    attempt_id VARCHAR(256) NOT NULL,
    attempts BIGINT NOT NULL CHECK (attempts BETWEEN 1 AND 3),
    reserved_requests BIGINT NOT NULL DEFAULT 0 CHECK (reserved_requests BETWEEN 0 AND 512),
    reserved_tokens BIGINT NOT NULL DEFAULT 0 CHECK (reserved_tokens BETWEEN 0 AND 64000000),
    failure_code VARCHAR(64),
    CHECK (source_through > source_after),
    PRIMARY KEY (scope_id, binding_name, source_after)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

CREATE TABLE IF NOT EXISTS pc_artifacts (
    scope_id VARCHAR(256) NOT NULL,
    family VARCHAR(64) NOT NULL,
    artifact_id VARCHAR(256) NOT NULL,
    revision BIGINT NOT NULL CHECK (revision >= 1),
    content LONGTEXT NOT NULL,
    PRIMARY KEY (scope_id, family, artifact_id, revision)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

CREATE TABLE IF NOT EXISTS pc_artifact_heads (
    scope_id VARCHAR(256) NOT NULL,
    family VARCHAR(64) NOT NULL,
    artifact_id VARCHAR(256) NOT NULL,
    revision BIGINT NOT NULL CHECK (revision >= 1),
    PRIMARY KEY (scope_id, family, artifact_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

CREATE TABLE IF NOT EXISTS pc_artifact_lineage_sources (
    scope_id VARCHAR(256) NOT NULL,
    family VARCHAR(64) NOT NULL,
    artifact_id VARCHAR(256) NOT NULL,
    revision BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    source_type VARCHAR(256) NOT NULL,
    source_id VARCHAR(256) NOT NULL,
    PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

CREATE TABLE IF NOT EXISTS pc_artifact_lineage_artifacts (
    scope_id VARCHAR(256) NOT NULL,
    family VARCHAR(64) NOT NULL,
    artifact_id VARCHAR(256) NOT NULL,
    revision BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    based_on_family VARCHAR(64) NOT NULL,
    based_on_artifact_id VARCHAR(256) NOT NULL,
    based_on_revision BIGINT NOT NULL,
    PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

CREATE TABLE IF NOT EXISTS pc_topic_memory_revision_publications (
    scope_id VARCHAR(256) NOT NULL,
    artifact_id VARCHAR(256) NOT NULL,
    revision BIGINT NOT NULL,
    -- ISO 8601 in UTC with milliseconds, as in SQLite.
    published_at VARCHAR(32) NOT NULL,
    PRIMARY KEY (scope_id, artifact_id, revision)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

CREATE TABLE IF NOT EXISTS pc_topic_memory_retrieval_shape (
    singleton BIGINT NOT NULL CHECK (singleton = 1),
    shape VARCHAR(16) NOT NULL CHECK (shape IN ('fts', 'hybrid')),
    embedding_fingerprint VARCHAR(256),
    -- What the stored terms and chunks were made by; other versions would not find them.
    analyzer_version BIGINT NOT NULL,
    chunk_policy_version BIGINT NOT NULL,
    PRIMARY KEY (singleton)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What a search ranks by: how many active records the Scope has.
CREATE TABLE IF NOT EXISTS pc_topic_memory_scope_statistics (
    scope_id VARCHAR(256) NOT NULL,
    topics BIGINT NOT NULL CHECK (topics >= 0),
    chunks BIGINT NOT NULL CHECK (chunks >= 0),
    -- The newest topic_key of the Scope.
    topic_keys BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (scope_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

-- `terms` is what a record is scored by. `postings` holds the same terms, each with its Scope's key and
-- in letters the parser keeps together, so that a posting list never crosses Scopes.
CREATE TABLE IF NOT EXISTS pc_topic_memory_active_topics (
    scope_id VARCHAR(256) NOT NULL,
    topic_key BIGINT NOT NULL,
    artifact_id VARCHAR(256) NOT NULL,
    revision BIGINT NOT NULL,
    title LONGTEXT NOT NULL,
    summary LONGTEXT NOT NULL,
    source_count BIGINT NOT NULL,
    terms LONGTEXT NOT NULL,
    postings LONGTEXT NOT NULL,
    PRIMARY KEY (scope_id, topic_key),
    UNIQUE KEY pc_topic_memory_active_topics_by_id (scope_id, artifact_id),
    FULLTEXT KEY pc_topic_memory_topic_fts (postings)
        WITH PARSER space PARSER_PROPERTIES = (min_token_size = 1, max_token_size = 84)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;

-- chunk_key = topic_key * 1048576 + ordinal, so the chunks of one Topic are one range.
CREATE TABLE IF NOT EXISTS pc_topic_memory_active_chunks (
    scope_id VARCHAR(256) NOT NULL,
    chunk_key BIGINT NOT NULL,
    artifact_id VARCHAR(256) NOT NULL,
    revision BIGINT NOT NULL,
    ordinal BIGINT NOT NULL CHECK (ordinal BETWEEN 0 AND 1048575),
    body_position BIGINT NOT NULL,
    body LONGTEXT NOT NULL,
    terms LONGTEXT NOT NULL,
    postings LONGTEXT NOT NULL,
    PRIMARY KEY (scope_id, chunk_key),
    FULLTEXT KEY pc_topic_memory_chunk_fts (postings)
        WITH PARSER space PARSER_PROPERTIES = (min_token_size = 1, max_token_size = 84)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    PARTITION BY KEY (scope_id) PARTITIONS 8;
