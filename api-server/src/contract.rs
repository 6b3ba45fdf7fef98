//! The objects of the wire contract: names, fields, limits. Typed copies of the requests follow.
//!
//! Limits are those of the contract; what a value means is left to the handlers. The typed requests
//! are only decoded from values that [`crate::schema::check`] has accepted.

use serde::Deserialize;
use serde_json::Value;

use crate::schema::{Default, Field, Object, Pattern, Shape};

const SCOPE_ID: Shape = Shape::Text(1, Some(256), Pattern::NotBlank);
const TRIMMED_256: Shape = Shape::Text(1, Some(256), Pattern::Trimmed);
const SUMMARY: Shape = Shape::Text(1, Some(2_000), Pattern::Trimmed);
const PLAIN: Shape = Shape::Text(0, None, Pattern::Any);
const REVISION: Shape = Shape::Integer(1, None);
const SCOPE_IDS: Shape = Shape::Set(&SCOPE_ID);
const CONTENT_ONLY: Shape = Shape::Word(&["content"]);
const NULLABLE_CURSOR: Shape = Shape::Nullable(&Shape::Text(1, Some(4_096), Pattern::Any));
const EXTERNAL: Shape = Shape::Set(&Shape::Object(&EXTERNAL_REFERENCE));

/// `ScopeExternalReference`.
pub static EXTERNAL_REFERENCE: Object = Object {
    name: "ScopeExternalReference",
    fields: &[
        Field::required("kind", Shape::Text(1, Some(128), Pattern::Trimmed)),
        Field::required("value", SUMMARY),
    ],
};

/// Body of `create_scope`.
pub static CREATE_SCOPE: Object = Object {
    name: "CreateScopeRequest",
    fields: &[
        Field::required("title", TRIMMED_256),
        Field::required("summary", SUMMARY),
        Field::optional("parent_scope_id", Shape::Nullable(&SCOPE_ID)),
        Field::defaulting("context_references", SCOPE_IDS, Default::EmptyList),
        Field::defaulting("external_references", EXTERNAL, Default::EmptyList),
        Field::required("idempotency_key", TRIMMED_256),
    ],
};

/// Body of `update_scope`.
pub static UPDATE_SCOPE: Object = Object {
    name: "UpdateScopeRequest",
    fields: &[
        Field::required("expected_version", REVISION),
        Field::required("title", TRIMMED_256),
        Field::required("summary", SUMMARY),
        Field::optional("parent_scope_id", Shape::Nullable(&SCOPE_ID)),
        Field::defaulting("context_references", SCOPE_IDS, Default::EmptyList),
        Field::defaulting("external_references", EXTERNAL, Default::EmptyList),
    ],
};

/// Body of `set_default_scope`.
pub static SET_DEFAULT_SCOPE: Object =
    Object { name: "SetDefaultScopeRequest", fields: &[Field::required("scope_id", SCOPE_ID)] };

/// A Scope as it is answered.
pub static SCOPE: Object = Object {
    name: "ScopeDescriptor",
    fields: &[
        Field::required("scope_id", SCOPE_ID),
        Field::required("title", TRIMMED_256),
        Field::required("summary", SUMMARY),
        Field::optional("parent_scope_id", Shape::Nullable(&SCOPE_ID)),
        Field::required("context_references", SCOPE_IDS),
        Field::required("external_references", EXTERNAL),
        Field::required("version", REVISION),
    ],
};

/// A page of Scopes.
pub static SCOPE_PAGE: Object = Object {
    name: "ScopePage",
    fields: &[
        Field::required("items", Shape::List(&Shape::Object(&SCOPE))),
        Field::optional("next_cursor", NULLABLE_CURSOR),
    ],
};

/// Body of `create_source`.
pub static CREATE_SOURCE: Object = Object {
    name: "CreateSourceRequest",
    fields: &[
        Field::defaulting("source_type", CONTENT_ONLY, Default::Text("content")),
        Field::required("content", Shape::Anything),
    ],
};

/// Body of `capture_content_source`.
pub static CAPTURE: Object = Object {
    name: "CaptureContentSourceRequest",
    fields: &[
        Field::required("scope_id", SCOPE_ID),
        // Whether the id is padded or the text blank is only looked at in a Scope that exists.
        Field::required("source_id", Shape::Text(1, Some(256), Pattern::Any)),
        Field::required("content", Shape::Text(1, Some(200_000), Pattern::Any)),
        Field::optional("metadata", Shape::Nullable(&Shape::OpenObject)),
    ],
};

/// `SourceReference`.
pub static SOURCE_REFERENCE: Object = Object {
    name: "SourceReference",
    fields: &[Field::required("name", PLAIN), Field::required("source_id", PLAIN)],
};

/// Answer of `capture_content_source`.
pub static CAPTURED: Object = Object {
    name: "CaptureContentSourceResponse",
    fields: &[
        Field::required("status", Shape::Word(&["accepted"])),
        Field::required("source", Shape::Object(&SOURCE_REFERENCE)),
        Field::required("position", REVISION),
    ],
};

/// A Source as it is answered. `receipt_identity` is always null: there are no handoffs here.
pub static SOURCE: Object = Object {
    name: "SourceRecord",
    fields: &[
        Field::optional("receipt_identity", Shape::Nullable(&Shape::OpenObject)),
        Field::required("scope_id", SCOPE_ID),
        Field::required("source_type", CONTENT_ONLY),
        Field::required("source_id", PLAIN),
        Field::required("content", Shape::Anything),
        Field::required("position", REVISION),
        Field::required("content_digest", PLAIN),
    ],
};

/// A page of Sources.
pub static SOURCE_PAGE: Object = Object {
    name: "SourcePage",
    fields: &[
        Field::required("items", Shape::List(&Shape::Object(&SOURCE))),
        Field::required("next_cursor", NULLABLE_CURSOR),
    ],
};

const FAMILY: Shape = Shape::Text(1, Some(128), Pattern::Graphic);

/// `ArtifactReference`.
pub static ARTIFACT: Object = Object {
    name: "ArtifactReference",
    fields: &[
        Field::required("family", FAMILY),
        Field::required("artifact_id", FAMILY),
        Field::required("revision", REVISION),
    ],
};

/// Body of `flush_topic_memory`.
pub static FLUSH: Object =
    Object { name: "FlushTopicMemoryRequest", fields: &[Field::required("scope_id", SCOPE_ID)] };

/// Answer of `flush_topic_memory`.
pub static FLUSHED: Object = Object {
    name: "FlushTopicMemoryResponse",
    fields: &[Field::required("status", Shape::Word(&["accepted", "idle"]))],
};

/// The hits of a search that names no limit.
pub const SEARCH_LIMIT: u32 = 10;

/// Body of `search_topic_memory` (B-3).
pub static SEARCH: Object = Object {
    name: "SearchTopicMemoryRequest",
    fields: &[
        Field::required("scope_id", SCOPE_ID),
        Field::required("query", Shape::Text(1, Some(8_192), Pattern::Unpadded)),
        Field::defaulting("limit", Shape::Integer(1, Some(20)), Default::Integer(SEARCH_LIMIT as i64)),
    ],
};

const TITLE: Shape = Shape::Text(1, Some(512), Pattern::Any);
const TOPIC_SUMMARY: Shape = Shape::Text(1, Some(8_000), Pattern::Any);

/// One hit.
pub static HIT: Object = Object {
    name: "SearchTopicMemoryHit",
    fields: &[
        Field::required("artifact", Shape::Object(&ARTIFACT)),
        Field::required("title", TITLE),
        Field::required("summary", TOPIC_SUMMARY),
        Field::required("snippet", Shape::Nullable(&PLAIN)),
        Field::required("score", Shape::Number),
        Field::required("matched_by", Shape::NonEmptySet(&Shape::Word(&["topic_fts", "detail_fts"]))),
    ],
};

/// Answer of `search_topic_memory`.
pub static HITS: Object = Object {
    name: "SearchTopicMemoryResponse",
    fields: &[
        Field::required("mode", Shape::Word(&["fts"])),
        Field::required("hits", Shape::List(&Shape::Object(&HIT))),
    ],
};

/// Body of `get_topic_memory`.
pub static GET_TOPIC: Object = Object {
    name: "GetTopicMemoryRequest",
    fields: &[Field::required("scope_id", SCOPE_ID), Field::required("artifact", Shape::Object(&ARTIFACT))],
};

/// One exact Revision of a Topic.
pub static TOPIC: Object = Object {
    name: "TopicMemoryArtifact",
    fields: &[
        Field::required("artifact", Shape::Object(&ARTIFACT)),
        Field::required("title", TITLE),
        Field::required("summary", TOPIC_SUMMARY),
        Field::required("detail", Shape::Text(1, Some(125_000), Pattern::Any)),
        Field::required("source_refs", Shape::List(&Shape::Object(&SOURCE_REFERENCE))),
    ],
};

/// Answer of `get_liveness`.
pub static HEALTH: Object = Object { name: "HealthResponse", fields: &[Field::required("status", PLAIN)] };

/// Answer of `get_readiness`.
pub static READINESS: Object = Object {
    name: "ReadinessResponse",
    fields: &[
        Field::required("status", Shape::Word(&["ready", "degraded", "not_ready"])),
        Field::required("checks", Shape::MapOf(&PLAIN)),
    ],
};

/// What one prompt of the server can do.
pub static PROMPT: Object = Object {
    name: "PromptCapability",
    fields: &[
        Field::required("status", Shape::Word(&["supported", "disabled", "unsupported"])),
        Field::required(
            "reason",
            Shape::Nullable(&Shape::Word(&[
                "operation_disabled",
                "provider_not_configured",
                "injected_component",
            ])),
        ),
        Field::required("definition_version", PLAIN),
        Field::required("builtin_version", PLAIN),
        Field::required("builtin_profile", Shape::Nullable(&PLAIN)),
    ],
};

const NAMES: Shape = Shape::List(&PLAIN);

/// Answer of `get_capabilities`.
pub static CAPABILITIES: Object = Object {
    name: "Capabilities",
    fields: &[
        Field::required("prompts", Shape::MapOf(&Shape::Object(&PROMPT))),
        Field::required("artifact_dreaming", Shape::Boolean),
        Field::required("source_types", NAMES),
        Field::required("artifact_families", NAMES),
        Field::required("memory_extraction", Shape::Boolean),
        Field::required("experience_generation", Shape::Boolean),
        Field::required("managed_skill_generation", Shape::Boolean),
        Field::required("external_skill_registry", Shape::Boolean),
        Field::required("handoff_generation", Shape::Boolean),
        Field::required("search_modes", NAMES),
        Field::required("context_versions", NAMES),
    ],
};

/// The inside of every error.
pub static ERROR_DETAIL: Object = Object {
    name: "ErrorDetail",
    fields: &[
        Field::required("code", PLAIN),
        Field::required("message", PLAIN),
        Field::required("details", Shape::Nullable(&Shape::OpenObject)),
    ],
};

/// Every error.
pub static ERROR: Object =
    Object { name: "ErrorResponse", fields: &[Field::required("error", Shape::Object(&ERROR_DETAIL))] };

/// A request body: its shape and, by its own fields, its typed copy.
pub trait Body: serde::de::DeserializeOwned {
    /// The shape that is checked before decoding.
    const SHAPE: &'static Object;
}

macro_rules! body {
    ($(#[$doc:meta])* $name:ident, $shape:ident { $($(#[$field_doc:meta])* $(@$default:ident)? $field:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* $(#[serde($default)])? pub $field: $kind),*
        }

        impl Body for $name {
            const SHAPE: &'static Object = &$shape;
        }
    };
}

/// A positive integer of any size; `None` when it is beyond the range of every counter here.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(from = "serde_json::Number")]
pub struct Counter(pub Option<i64>);

impl From<serde_json::Number> for Counter {
    fn from(number: serde_json::Number) -> Self {
        Self(number.as_i64())
    }
}

/// An external reference as it is written.
#[derive(Debug, Deserialize)]
pub struct ExternalReferenceBody {
    /// What kind of thing is referred to.
    pub kind: String,
    /// Its name there.
    pub value: String,
}

body!(
    /// `create_scope`.
    CreateScope, CREATE_SCOPE {
        /// See the contract.
        title: String,
        /// See the contract.
        summary: String,
        /// The Scope above.
        @default parent_scope_id: Option<String>,
        /// Scopes whose context is read along.
        @default context_references: Vec<String>,
        /// Names elsewhere.
        @default external_references: Vec<ExternalReferenceBody>,
        /// Makes a repeated request harmless.
        idempotency_key: String,
    }
);
body!(
    /// `update_scope`.
    UpdateScope, UPDATE_SCOPE {
        /// The version the caller has seen.
        expected_version: Counter,
        /// See the contract.
        title: String,
        /// See the contract.
        summary: String,
        /// The Scope above.
        @default parent_scope_id: Option<String>,
        /// Scopes whose context is read along.
        @default context_references: Vec<String>,
        /// Names elsewhere.
        @default external_references: Vec<ExternalReferenceBody>,
    }
);
body!(
    /// `set_default_scope`.
    SetDefaultScope, SET_DEFAULT_SCOPE {
        /// The Scope.
        scope_id: String,
    }
);
body!(
    /// `create_source`.
    CreateSource, CREATE_SOURCE {
        /// `content` or absent.
        @default source_type: Option<String>,
        /// Any JSON value, null included.
        content: Value,
    }
);
body!(
    /// `capture_content_source`.
    Capture, CAPTURE {
        /// The Scope.
        scope_id: String,
        /// The caller's id for the Source.
        source_id: String,
        /// The text.
        content: String,
        /// Free data about the text.
        @default metadata: Option<Value>,
    }
);
body!(
    /// `flush_topic_memory` (TM-231).
    Flush, FLUSH {
        /// The Scope.
        scope_id: String,
    }
);
body!(
    /// `search_topic_memory` (TM-237).
    Search, SEARCH {
        /// The Scope.
        scope_id: String,
        /// The text to find.
        query: String,
        /// The most hits.
        @default limit: Option<u32>,
    }
);
/// A reference to an exact Revision as it is written.
#[derive(Debug, Deserialize)]
pub struct ArtifactBody {
    /// The family.
    pub family: String,
    /// The identity.
    pub artifact_id: String,
    /// The Revision.
    pub revision: Counter,
}

body!(
    /// `get_topic_memory` (TM-238).
    GetTopic, GET_TOPIC {
        /// The Scope.
        scope_id: String,
        /// The exact Revision.
        artifact: ArtifactBody,
    }
);
