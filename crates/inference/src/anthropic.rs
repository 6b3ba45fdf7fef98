//! The Anthropic messages protocol, for Anthropic itself and for endpoints that speak it.
//!
//! One call sends exactly one request: no tool, no container, no stored history (TM-079, TM-082). JSON
//! is asked for with `output_config.format`. Sampling settings are sent only where they are set,
//! because current models refuse any.

use async_trait::async_trait;
use powercontext_core::stages::StructuredOutput;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::config::{ConfigurationError, GenerationConfig};
use crate::error::GenerationError;
use crate::generator::{Generation, GenerationRequest, Generator, MAX_RESPONSE_BYTES, Usage};
use crate::schema::require_strict;
use crate::settings::{ModelSettings, Protocol};
use crate::transport::{Endpoint, EndpointParts, secret_header};
use crate::wording;

const BASE_URL: &str = "https://api.anthropic.com/v1";
const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));

/// One model behind one endpoint.
#[derive(Debug)]
pub(crate) struct Anthropic {
    model: String,
    name: String,
    structured_output: StructuredOutput,
    settings: ModelSettings,
    endpoint: Endpoint,
}

impl Anthropic {
    /// Checks the endpoint's settings and sets up its client; sends nothing.
    pub(crate) fn new(name: &str, config: &GenerationConfig) -> Result<Self, ConfigurationError> {
        if config.base_url.is_none() && config.api_key.is_none() {
            return Err(ConfigurationError::MissingKey { model: config.model.clone() });
        }
        let settings = ModelSettings::parse(config.settings.as_ref(), Protocol::Anthropic)?;
        let mut headers = vec![VERSION];
        if let Some(key) = &config.api_key {
            headers.push((HeaderName::from_static("x-api-key"), secret_header(key.reveal())?));
        }
        let endpoint = Endpoint::new(EndpointParts {
            base_url: config.base_url.as_deref().unwrap_or(BASE_URL),
            path: &["messages"],
            headers,
            further: config.headers.as_ref(),
            timeout: settings.timeout.map_or(config.timeout, |own| own.min(config.timeout)),
        })?;
        Ok(Self {
            model: config.model.clone(),
            name: name.to_owned(),
            structured_output: config.structured_output,
            settings,
            endpoint,
        })
    }

    fn body(&self, request: &GenerationRequest<'_>) -> Value {
        let mut output = self.settings.output_config.clone();
        let instructions = match self.structured_output {
            StructuredOutput::JsonSchema => {
                let format = json!({ "type": "json_schema", "schema": request.schema });
                output.insert("format".to_owned(), format);
                request.instructions.to_owned()
            }
            StructuredOutput::JsonObject => wording::with_schema(request),
        };
        let tokens = self.settings.max_tokens.unwrap_or(u64::MAX).min(request.max_output_tokens);
        let mut body = Map::new();
        body.insert("model".to_owned(), self.name.clone().into());
        body.insert("max_tokens".to_owned(), tokens.into());
        body.insert("system".to_owned(), instructions.into());
        body.insert("messages".to_owned(), wording::exchange(request).into());
        if !output.is_empty() {
            body.insert("output_config".to_owned(), output.into());
        }
        body.extend(self.settings.body.clone());
        Value::Object(body)
    }
}

#[async_trait]
impl Generator for Anthropic {
    fn model(&self) -> &str {
        &self.model
    }

    async fn generate(&self, request: &GenerationRequest<'_>) -> Result<Generation, GenerationError> {
        let stage = request.stage.as_str();
        require_strict(request.schema).map_err(|source| GenerationError::Schema { stage, source })?;
        let reply = self.endpoint.ask(&self.body(request), MAX_RESPONSE_BYTES).await?;
        match reply.failure() {
            Some(failure) => Err(failure),
            None => answer(&reply.body, reply.usage()),
        }
    }
}

#[derive(Deserialize)]
struct Message {
    content: Vec<Block>,
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

/// Sorts a successful response by its reason to stop and the kinds of its blocks.
fn answer(body: &[u8], usage: Option<Usage>) -> Result<Generation, GenerationError> {
    let Ok(Message { content, stop_reason }) = serde_json::from_slice(body) else {
        return Err(GenerationError::Unreadable { usage });
    };
    match stop_reason.as_deref() {
        Some("refusal") => return Err(GenerationError::Refused { usage }),
        // No stop sequence is ever sent, so stopping at one cuts the answer off.
        Some("max_tokens" | "model_context_window_exceeded" | "stop_sequence") => {
            return Err(GenerationError::Truncated { usage });
        }
        Some("end_turn") | None => {}
        // tool_use, pause_turn, and every way of suspending an answer there may ever be.
        Some(_) => return Err(GenerationError::Suspended { usage }),
    }
    let mut text = String::new();
    let mut texts = 0;
    for block in content {
        match (block.kind.as_str(), block.text) {
            ("text", Some(part)) => {
                text.push_str(&part);
                texts += 1;
            }
            ("thinking" | "redacted_thinking", _) => {}
            ("text", None) => return Err(GenerationError::Unreadable { usage }),
            _ => return Err(GenerationError::Suspended { usage }),
        }
    }
    if texts == 0 {
        return Err(GenerationError::Unreadable { usage });
    }
    Ok(Generation { text, usage: usage.unwrap_or_default() })
}
