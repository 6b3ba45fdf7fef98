//! The further headers of an endpoint, for gateways that ask for them.
//!
//! Their values are secrets: no message and no debug text has one. A header that the protocol or the
//! connection sets itself is refused, so that none can take the place of the key, the content type or
//! the host.

use powercontext_core::secret::Secret;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::config::ConfigurationError;
use crate::json;

/// Headers of one endpoint at most.
const MAX_HEADERS: usize = 16;
/// Bytes of one value at most.
const MAX_VALUE_BYTES: usize = 4096;

const OURS: [&str; 15] = [
    "authorization",
    "x-api-key",
    "anthropic-version",
    "content-type",
    "content-length",
    "content-encoding",
    "accept",
    "accept-encoding",
    "host",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads a JSON object of header names and texts.
///
/// # Errors
/// [`ConfigurationError::InvalidHeaders`] with the name of the header, never with a value.
pub(crate) fn parse(text: Option<&Secret>) -> Result<HeaderMap, ConfigurationError> {
    let mut headers = HeaderMap::new();
    let Some(text) = text else { return Ok(headers) };
    let refused = |problem: String| ConfigurationError::InvalidHeaders { problem };
    let fields = json::fields(text.reveal())
        .ok_or_else(|| refused("must be one JSON object of names and texts, each name once".to_owned()))?;
    if fields.len() > MAX_HEADERS {
        return Err(refused(format!("must be at most {MAX_HEADERS}")));
    }
    for (given, value) in fields {
        let shown = json::shown(&given);
        let name = HeaderName::from_bytes(given.as_bytes())
            .map_err(|_| refused(format!("`{shown}` is not the name of a header")))?;
        if OURS.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
            return Err(refused(format!("`{shown}` is set by the protocol and cannot be replaced")));
        }
        let value = value
            .as_str()
            .filter(|value| !value.is_empty() && value.len() <= MAX_VALUE_BYTES)
            .and_then(|value| HeaderValue::from_str(value).ok())
            .ok_or_else(|| refused(format!("`{shown}` has no value that can be sent")))?;
        let mut value = value;
        value.set_sensitive(true);
        if headers.insert(name, value).is_some() {
            return Err(refused(format!("`{shown}` is given twice")));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HeaderMap, ConfigurationError> {
        parse(Some(&Secret::new(text)))
    }

    #[test]
    fn further_headers_are_sent_and_never_shown() {
        let headers = read(r#"{"X-Team":"blue-1","x-route":"a b"}"#).unwrap();
        assert_eq!(headers.get("x-team").unwrap(), "blue-1");
        assert!(!format!("{headers:?}").contains("blue-1"));
        assert!(parse(None).unwrap().is_empty());
    }

    #[test]
    fn a_header_that_is_ours_or_cannot_be_sent_is_refused_without_its_value() {
        for text in [
            r#"{"Authorization":"hidden"}"#,
            r#"{"x-API-key":"hidden"}"#,
            r#"{"Host":"hidden"}"#,
            r#"{"content-type":"hidden"}"#,
            r#"{"Proxy-Authorization":"hidden"}"#,
            r#"{"transfer-encoding":"hidden"}"#,
            r#"{"anthropic-version":"hidden"}"#,
            r#"{"a b":"hidden"}"#,
            r#"{"":"hidden"}"#,
            r#"{"x-a":"hidden\n"}"#,
            r#"{"x-a":1}"#,
            r#"{"x-a":""}"#,
            r#"{"x-a":"hidden","x-a":"hidden"}"#,
            r#"{"x-a":"hidden","X-A":"hidden"}"#,
            "hidden",
            r#"["hidden"]"#,
        ] {
            let error = read(text).unwrap_err();
            assert!(matches!(error, ConfigurationError::InvalidHeaders { .. }), "{text}");
            assert!(!format!("{error} {error:?}").contains("hidden"), "{error}");
        }
        let many: Vec<String> = (0..17).map(|n| format!("\"x-{n}\":\"v\"")).collect();
        assert!(read(&format!("{{{}}}", many.join(","))).is_err());
    }
}
