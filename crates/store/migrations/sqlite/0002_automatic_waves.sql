-- Automatic waves: when each binding completed its last one, and the targets of the wave under way.

-- One row per binding, kept when nothing is pending, so that the period goes on across terms.
CREATE TABLE pc_artifact_processing_binding_states (
    binding_name TEXT PRIMARY KEY,
    last_auto_wave_completed_at TEXT
) WITHOUT ROWID;

-- Scratch of the current term; a new term clears it.
CREATE TABLE pc_artifact_processing_auto_wave_targets (
    wave_id TEXT NOT NULL,
    binding_name TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    source_through INTEGER NOT NULL CHECK (source_through >= 1),
    completed INTEGER NOT NULL DEFAULT FALSE,
    PRIMARY KEY (wave_id, binding_name, scope_id)
) WITHOUT ROWID;
-- All that a page of open targets reads; a page would go through the completed ones of the table itself.
CREATE INDEX pc_artifact_processing_auto_wave_targets_open
    ON pc_artifact_processing_auto_wave_targets (binding_name, wave_id, completed, scope_id, source_through);
