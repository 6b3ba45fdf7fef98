//! How an error is told once, where it is handled: with everything that caused it.
//!
//! What may be in an error's text is decided where the error is defined.

use std::error::Error;

/// An error with all its causes on one line, nearest cause first. A cause whose words already end the
/// line is not told again: some libraries repeat their cause in their own text.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Told(&'static str, #[source] Option<Box<Told>>);

    #[test]
    fn an_error_is_told_with_all_its_causes() {
        let told = Told("a", Some(Box::new(Told("b", Some(Box::new(Told("c", None)))))));
        assert_eq!(chain(&told), "a: b: c");
        assert_eq!(chain(&Told("alone", None)), "alone");
        let repeated = Told("a: b", Some(Box::new(Told("b", Some(Box::new(Told("c", None)))))));
        assert_eq!(chain(&repeated), "a: b: c");
    }
}
