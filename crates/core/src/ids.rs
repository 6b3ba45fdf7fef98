//! Identities and counters, each with the one way to make a valid value.
//!
//! Text identities are opaque: compared by bytes, never folded, at most a fixed number of Unicode
//! scalar values. Counters are plain ordered integers that only their own rules may move.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ambient::IdSource;

/// Why a text is not an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// Empty, or white space alone.
    #[error("{kind} must not be blank")]
    Blank {
        /// Which identity was meant.
        kind: &'static str,
    },
    /// More Unicode scalar values than the identity may have.
    #[error("{kind} must have at most {limit} characters")]
    TooLong {
        /// Which identity was meant.
        kind: &'static str,
        /// The largest allowed number of characters.
        limit: usize,
    },
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $limit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The largest number of characters (Unicode scalar values).
            pub const MAX_CHARS: usize = $limit;

            /// Accepts a non-blank text of at most [`Self::MAX_CHARS`] characters.
            ///
            /// # Errors
            /// [`InvalidId`] says what is wrong with the text.
            pub fn parse(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                if text.trim().is_empty() {
                    return Err(InvalidId::Blank { kind: $kind });
                }
                if text.len() > $limit && text.chars().count() > $limit {
                    return Err(InvalidId::TooLong { kind: $kind, limit: $limit });
                }
                Ok(Self(text))
            }

            /// The identity as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// Names one Scope, the unit of isolation (TM-016).
    ScopeId, "scope_id", 256
);
impl ScopeId {
    /// A new identity: `scp_` and a time-ordered UUID in 26 lower-case Crockford base32 digits, so
    /// that later Scopes sort behind earlier ones.
    #[must_use]
    pub fn generate(ids: &dyn IdSource) -> Self {
        const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let mut rest = ids.ordered().as_u128();
        let mut digits = [0_u8; 26];
        for digit in digits.iter_mut().rev() {
            *digit = DIGITS[(rest % 32) as usize];
            rest /= 32;
        }
        Self(format!("scp_{}", String::from_utf8_lossy(&digits)))
    }
}

text_id!(
    /// Names one Source inside its Scope (TM-019).
    SourceId, "source_id", 256
);
text_id!(
    /// Names one Artifact for its whole life; opaque and stable (TM-011).
    ArtifactId, "artifact_id", 128
);
text_id!(
    /// Names one way of turning Sources into Artifacts (TM-008).
    BindingName, "binding_name", 128
);
text_id!(
    /// Names one supervisor process; a new UUIDv4 at every start (TM-181).
    HolderId, "holder_id", 64
);
text_id!(
    /// Names one processing attempt of a frontier (TM-075).
    AttemptId, "attempt_id", 64
);
text_id!(
    /// Names one automatic wave of one binding; a UUID (TM-205).
    WaveId, "wave_id", 36
);
impl WaveId {
    /// A new identity.
    #[must_use]
    pub fn generate(ids: &dyn IdSource) -> Self {
        Self(ids.random().to_string())
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(i64);

        impl $name {
            /// Wraps a stored value; negative values become zero.
            #[must_use]
            pub const fn new(value: i64) -> Self {
                Self(if value < 0 { 0 } else { value })
            }

            /// The value as stored.
            #[must_use]
            pub const fn get(self) -> i64 {
                self.0
            }

            /// The next value.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }
    };
}

counter!(
    /// A place in a Scope's Source Journal; 0 lies before the first Source (TM-020).
    Position
);
counter!(
    /// The number of an immutable Revision of an Artifact; the first is 1 (TM-012).
    Revision
);
counter!(
    /// How often an explicit flush was asked for on one Pending row (TM-162).
    FlushGeneration
);
counter!(
    /// The leadership term; grows with every acquisition, never with a renewal (TM-182).
    SupervisorGeneration
);

/// A contiguous part `(after, through]` of one Scope's Journal (TM-022).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// The Cursor the Window starts behind.
    pub after: Position,
    /// The last position inside the Window.
    pub through: Position,
}

/// Names one exact Source of a Scope: its type (`content`) and its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceRef {
    /// The Source type; today always [`SourceRef::CONTENT`].
    pub source_type: String,
    /// The Source's id inside its Scope.
    pub source_id: SourceId,
}

impl SourceRef {
    /// The one Source type there is.
    pub const CONTENT: &'static str = "content";

    /// A reference to a `content` Source.
    #[must_use]
    pub fn content(source_id: SourceId) -> Self {
        Self { source_type: Self::CONTENT.to_owned(), source_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_counted_in_characters_not_bytes() {
        assert!(ScopeId::parse("漢".repeat(256)).is_ok());
        assert_eq!(
            ScopeId::parse("漢".repeat(257)),
            Err(InvalidId::TooLong { kind: "scope_id", limit: 256 })
        );
    }

    #[test]
    fn generated_scope_ids_sort_in_the_order_they_were_made() {
        let ids = crate::ambient::SystemIds;
        let made: Vec<ScopeId> = (0..100).map(|_| ScopeId::generate(&ids)).collect();
        assert!(made.is_sorted());
        assert!(made.iter().all(|id| id.as_str().len() == 30 && id.as_str().starts_with("scp_")));
    }

    #[test]
    fn a_blank_identity_is_refused() {
        assert_eq!(ScopeId::parse(" \n"), Err(InvalidId::Blank { kind: "scope_id" }));
    }
}
