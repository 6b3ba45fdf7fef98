-- Automatic waves: when each binding completed its last one, and the targets of the wave under way.

-- One row per binding, kept when nothing is pending, so that the period goes on across terms. Written and
-- compared with utc_timestamp(6) in sessions whose time zone is UTC.
CREATE TABLE IF NOT EXISTS pc_artifact_processing_binding_states (
    binding_name VARCHAR(128) NOT NULL,
    last_auto_wave_completed_at TIMESTAMP(6) NULL DEFAULT NULL,
    PRIMARY KEY (binding_name)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Scratch of the current term; a new term clears it. Not partitioned: it is read in Scope order.
CREATE TABLE IF NOT EXISTS pc_artifact_processing_auto_wave_targets (
    wave_id VARCHAR(36) NOT NULL,
    binding_name VARCHAR(128) NOT NULL,
    scope_id VARCHAR(256) NOT NULL,
    source_through BIGINT NOT NULL CHECK (source_through >= 1),
    completed BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (wave_id, binding_name, scope_id),
    -- All that a page of open targets reads; a page would go through the completed ones of the table itself.
    KEY pc_artifact_processing_auto_wave_targets_open
        (binding_name, wave_id, completed, scope_id, source_through)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
