//! A text that must never be seen: keys, tokens, passwords inside URLs.
//!
//! `Debug` and `Display` show a fixed mark; only [`Secret::reveal`] gives the text, at the place
//! that sends it.

use std::fmt;

/// A secret text; comparing and printing it never show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that must send it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("[redacted]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_secret_never_prints_itself() {
        // TM-228
        let secret = Secret::new("sk-live-1");
        assert_eq!(format!("{secret} {secret:?}"), "[redacted] [redacted]");
    }
}
