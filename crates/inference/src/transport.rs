//! One POST to one endpoint: exactly one request, bounded in time and size.
//!
//! Nothing is repeated and no redirect is followed, so neither a key nor a text is ever sent anywhere
//! but to the configured host (TM-079). What a reply means is left to `reply` and the protocols.

use std::time::Duration;

use powercontext_core::secret::Secret;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url, redirect};
use serde_json::Value;

use crate::config::ConfigurationError;
use crate::error::GenerationError;
use crate::headers;
use crate::reply::Reply;
use crate::retry_after::retry_after;

/// Where and how an endpoint is asked.
pub(crate) struct EndpointParts<'a> {
    /// The configured base URL, or the provider's own.
    pub(crate) base_url: &'a str,
    /// What the protocol appends to it.
    pub(crate) path: &'a [&'a str],
    /// The headers of the protocol, the key included.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The configured further headers.
    pub(crate) further: Option<&'a Secret>,
    /// The limit of one whole call.
    pub(crate) timeout: Duration,
}

/// An endpoint that can be asked.
#[derive(Debug)]
pub(crate) struct Endpoint {
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
    client: Client,
}

impl Endpoint {
    /// Checks the settings and sets up the client; sends nothing.
    pub(crate) fn new(parts: EndpointParts<'_>) -> Result<Self, ConfigurationError> {
        if parts.timeout.is_zero() {
            return Err(ConfigurationError::InvalidTimeout);
        }
        let mut headers = headers::parse(parts.further)?;
        headers.extend(parts.headers);
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .timeout(parts.timeout)
            .user_agent(concat!("powercontext-fleet/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|source| ConfigurationError::Client { source })?;
        Ok(Self { url: url(parts.base_url, parts.path)?, headers, timeout: parts.timeout, client })
    }

    /// Sends one request and reads at most `limit` bytes of its reply.
    pub(crate) async fn ask(&self, body: &Value, limit: usize) -> Result<Reply, GenerationError> {
        let call = self.client.post(self.url.clone()).headers(self.headers.clone()).json(body);
        let response = call.send().await.map_err(|error| self.failure(error))?;
        let status = response.status().as_u16();
        let retry_after = retry_after(response.headers());
        let is_success = response.status().is_success();
        let body = match self.read(response, limit).await {
            Ok(body) => body,
            Err(error) if is_success => return Err(error),
            // An error's status is known already: a body that breaks off must not hide it.
            Err(_) => Vec::new(),
        };
        Ok(Reply { status, retry_after, body })
    }

    async fn read(&self, mut response: Response, limit: usize) -> Result<Vec<u8>, GenerationError> {
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.failure(error))? {
            if body.len() + part.len() > limit {
                return Err(GenerationError::ResponseTooLarge { limit });
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    }

    fn failure(&self, source: reqwest::Error) -> GenerationError {
        if source.is_timeout() {
            GenerationError::Timeout { after: self.timeout }
        } else {
            GenerationError::Unreachable { usage: None, source: Some(source.without_url()) }
        }
    }
}

/// A header whose value is a secret.
pub(crate) fn secret_header(value: &str) -> Result<HeaderValue, ConfigurationError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| ConfigurationError::InvalidKey)?;
    value.set_sensitive(true);
    Ok(value)
}

fn url(base: &str, path: &[&str]) -> Result<Url, ConfigurationError> {
    let mut url = Url::parse(base.trim()).map_err(|_| ConfigurationError::InvalidBaseUrl)?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if !plain {
        return Err(ConfigurationError::InvalidBaseUrl);
    }
    url.path_segments_mut().map_err(|()| ConfigurationError::InvalidBaseUrl)?.pop_if_empty().extend(path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_shows_neither_its_key_nor_its_headers() {
        // TM-228
        let further = Secret::new(r#"{"x-gateway":"hidden-1"}"#);
        let endpoint = Endpoint::new(EndpointParts {
            base_url: "https://models.test/v1/",
            path: &["chat"],
            headers: vec![(HeaderName::from_static("x-api-key"), secret_header("hidden-2").unwrap())],
            further: Some(&further),
            timeout: Duration::from_secs(1),
        });
        let endpoint = endpoint.unwrap();
        let shown = format!("{endpoint:?}");
        assert!(shown.contains("x-gateway") && !shown.contains("hidden"), "{shown}");
        assert_eq!(endpoint.url.as_str(), "https://models.test/v1/chat");
    }
}
