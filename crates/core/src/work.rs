//! The contract between a supervisor and the worker it starts: the assignment, how the worker
//! ended. The stable names of everything that can go wrong are in `error_code`.
//!
//! An assignment carries no content, no deadline and no secret (TM-201). The outcome carries
//! counts and codes, never Source text, prompts or model output (TM-228).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::error_code::ErrorCode;
use crate::ids::{BindingName, FlushGeneration, HolderId, Position, ScopeId, SupervisorGeneration, Window};

/// The unit of single-flight: one binding in one Scope (TM-196).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkKey {
    /// How Sources are consumed.
    pub binding: BindingName,
    /// Whose Sources.
    pub scope: ScopeId,
}

/// The frontier that budgets are kept for: one key at one Cursor position (TM-059).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frontier {
    /// Binding and Scope.
    pub key: WorkKey,
    /// The Cursor position the binding tries to pass.
    pub source_after: Position,
}

/// The right to write for one leadership term (TM-184, TM-186).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fence {
    /// The supervisor process that holds the term.
    pub holder: HolderId,
    /// The term.
    pub generation: SupervisorGeneration,
}

/// Why a Window is processed; it decides what a publish does to the Pending row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkMode {
    /// A flush is answered; its last Window may remove the Pending row (TM-167, TM-171).
    Explicit,
    /// A frozen target of an automatic wave; the row stays for the wave's completion (TM-172, TM-213).
    Automatic,
    /// A Scope that came too late for an automatic wave that is held up; the row stays (TM-212).
    CatchUp,
}

impl WorkMode {
    /// The stable name in logs and assignments.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Automatic => "automatic",
            Self::CatchUp => "catch_up",
        }
    }
}

/// What one worker is to do: exactly one Window of one key (TM-002).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkAssignment {
    /// Binding and Scope.
    pub key: WorkKey,
    /// The term under which the worker may write.
    pub fence: Fence,
    /// The Cursor when the work was planned.
    pub source_after: Position,
    /// The position the wave must reach; a Window never passes it (TM-166).
    pub wave_target: Position,
    /// The flush generation this wave answers (TM-166); 0 unless the mode is explicit.
    pub claimed_flush_generation: FlushGeneration,
    /// Why the Window is processed.
    pub mode: WorkMode,
}

/// How a worker ended; the exit code of its process (design: exit codes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// A Window was published, or there was nothing to do.
    Done,
    /// Somebody else owns the work now: fence, Cursor, Head or attempt. Nothing was written.
    Superseded,
    /// The frontier is terminal until an operator repairs it.
    Permanent,
    /// The configuration does not allow the work.
    Configuration,
    /// Something failed that may pass.
    Transient,
    /// The process was told to stop.
    Terminated,
}

impl Ending {
    /// The stable name in logs, outcomes and budgets.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Superseded => "superseded",
            Self::Permanent => "permanent",
            Self::Configuration => "configuration",
            Self::Transient => "transient",
            Self::Terminated => "terminated",
        }
    }

    /// The process exit code.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Superseded => 10,
            Self::Permanent => 20,
            Self::Configuration => 30,
            Self::Transient => 40,
            Self::Terminated => 143,
        }
    }

    /// The ending behind an exit code; any unknown code (a crash, a kill) is transient.
    #[must_use]
    pub const fn from_exit_code(code: i32) -> Self {
        match code {
            0 => Self::Done,
            10 => Self::Superseded,
            20 => Self::Permanent,
            30 => Self::Configuration,
            143 => Self::Terminated,
            _ => Self::Transient,
        }
    }
}

/// The steps of a worker, in order; names in logs and outcomes (TM-224).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Open the database, check the fence and the frontier.
    Start,
    /// Commit the attempt.
    Attempt,
    /// Choose and read the Window.
    Select,
    /// Name and bound the evidence.
    Evidence,
    /// Ask for Probes.
    Probe,
    /// Recall and choose existing Topics.
    History,
    /// Ask for final content.
    Global,
    /// Second retrieval and coordination of new Topics.
    Reconcile,
    /// Cut chunks and full-text terms.
    Project,
    /// The one publish transaction.
    Publish,
}

impl Step {
    /// The stable name in logs, outcomes and budgets.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Attempt => "attempt",
            Self::Select => "select",
            Self::Evidence => "evidence",
            Self::Probe => "probe",
            Self::History => "history",
            Self::Global => "global",
            Self::Reconcile => "reconcile",
            Self::Project => "project",
            Self::Publish => "publish",
        }
    }
}

/// The one line a worker leaves behind: codes and counts, at most 4 KiB, never content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How the worker ended.
    pub ending: Ending,
    /// The step that was running or had failed last.
    pub step: Step,
    /// What went wrong; absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// The Window, once it was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// How many Sources, Topics and calls there were.
    pub counts: OutcomeCounts,
    /// Milliseconds per finished step.
    #[serde(default)]
    pub step_millis: BTreeMap<Step, u64>,
    /// How many seconds the model's provider asks to be left alone; at most an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
    /// Milliseconds from process start to the end of the first database read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_read_millis: Option<u64>,
}

/// The figures of an [`Outcome`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeCounts {
    /// Sources of the Window, `lineage_only` ones included.
    pub sources: u32,
    /// Topics created.
    pub created: u32,
    /// Topics updated.
    pub updated: u32,
    /// Provider requests that were sent, answered or not: each may have to be paid for.
    pub requests: u32,
    /// Input tokens as the provider counted them, of the requests it answered.
    pub input_tokens: u64,
    /// Output tokens as the provider counted them, of the requests it answered.
    pub output_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_names<T: Copy + Serialize>(all: &[T], name: impl Fn(T) -> &'static str) {
        for one in all {
            assert_eq!(serde_json::to_value(one).unwrap(), name(*one));
        }
    }

    #[test]
    fn a_name_in_a_log_is_the_name_on_the_wire() {
        // TM-224, TM-227
        assert_names(
            &[
                Ending::Done,
                Ending::Superseded,
                Ending::Permanent,
                Ending::Configuration,
                Ending::Transient,
                Ending::Terminated,
            ],
            Ending::as_str,
        );
        assert_names(
            &[
                Step::Start,
                Step::Attempt,
                Step::Select,
                Step::Evidence,
                Step::Probe,
                Step::History,
                Step::Global,
                Step::Reconcile,
                Step::Project,
                Step::Publish,
            ],
            Step::as_str,
        );
        assert_names(&[WorkMode::Explicit, WorkMode::Automatic, WorkMode::CatchUp], WorkMode::as_str);
    }
}
