//! A generation model behind one endpoint: what every protocol does alike.
//!
//! One call sends exactly one request (TM-079). What a request says and how its answer is read is the
//! protocol's own, in a [`Wire`].

use std::fmt::Debug;

use async_trait::async_trait;
use powercontext_core::stages::StructuredOutput;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::config::{ConfigurationError, GenerationConfig};
use crate::error::GenerationError;
use crate::generator::{Generation, GenerationRequest, Generator, MAX_RESPONSE_BYTES, Usage};
use crate::schema::require_strict;
use crate::settings::{ModelSettings, Protocol};
use crate::transport::{Endpoint, EndpointParts};

/// One protocol.
pub(crate) trait Wire: Debug + Send + Sync + Sized {
    /// Where its own provider is.
    const BASE_URL: &'static str;
    /// The path below the base URL.
    const PATH: &'static [&'static str];

    /// The protocol as these settings want it.
    fn of(config: &GenerationConfig) -> Self;

    /// Which settings of a model it takes.
    fn protocol(config: &GenerationConfig) -> Protocol;

    /// Its own headers, the key among them.
    fn headers(config: &GenerationConfig) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigurationError>;

    /// Its part of a request's body; model and settings stand there already.
    fn write(&self, body: &mut Map<String, Value>, asked: &Asked<'_>);

    /// Sorts a successful response.
    fn answer(body: &[u8], usage: Option<Usage>) -> Result<Generation, GenerationError>;
}

/// What is asked of a model.
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a GenerationRequest<'a>,
    pub(crate) structured_output: StructuredOutput,
    pub(crate) settings: &'a ModelSettings,
    /// Tokens the answer may have.
    pub(crate) tokens: u64,
}

/// One model behind one endpoint.
#[derive(Debug)]
pub(crate) struct Remote<W> {
    model: String,
    name: String,
    structured_output: StructuredOutput,
    settings: ModelSettings,
    endpoint: Endpoint,
    wire: W,
}

impl<W: Wire> Remote<W> {
    /// Checks the endpoint's settings and sets up its client; sends nothing.
    pub(crate) fn new(name: &str, config: &GenerationConfig) -> Result<Self, ConfigurationError> {
        if config.base_url.is_none() && config.api_key.is_none() {
            return Err(ConfigurationError::MissingKey { model: config.model.clone() });
        }
        let settings = ModelSettings::parse(config.settings.as_ref(), W::protocol(config))?;
        let endpoint = Endpoint::new(EndpointParts {
            base_url: config.base_url.as_deref().unwrap_or(W::BASE_URL),
            path: W::PATH,
            headers: W::headers(config)?,
            further: config.headers.as_ref(),
            timeout: settings.timeout.map_or(config.timeout, |own| own.min(config.timeout)),
        })?;
        Ok(Self {
            model: config.model.clone(),
            name: name.to_owned(),
            structured_output: config.structured_output,
            settings,
            endpoint,
            wire: W::of(config),
        })
    }

    fn body(&self, request: &GenerationRequest<'_>) -> Value {
        let mut body = Map::new();
        body.insert("model".to_owned(), self.name.clone().into());
        let tokens = self.settings.max_tokens.unwrap_or(u64::MAX).min(request.max_output_tokens);
        let structured_output = self.structured_output;
        self.wire.write(&mut body, &Asked { request, structured_output, settings: &self.settings, tokens });
        body.extend(self.settings.body.clone());
        Value::Object(body)
    }
}

#[async_trait]
impl<W: Wire> Generator for Remote<W> {
    fn model(&self) -> &str {
        &self.model
    }

    async fn generate(&self, request: &GenerationRequest<'_>) -> Result<Generation, GenerationError> {
        let stage = request.stage.as_str();
        require_strict(request.schema).map_err(|source| GenerationError::Schema { stage, source })?;
        let reply = self.endpoint.ask(&self.body(request), MAX_RESPONSE_BYTES).await?;
        match reply.failure() {
            Some(failure) => Err(failure),
            None => W::answer(&reply.body, reply.usage()),
        }
    }
}
