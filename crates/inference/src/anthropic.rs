//! The Anthropic messages protocol, for Anthropic itself and for endpoints that speak it.
//!
//! One call sends exactly one request: no tool, no container, no stored history (TM-079, TM-082). JSON
//! is asked for with `output_config.format`. Sampling settings are sent only where they are set,
//! because current models refuse any.

use powercontext_core::stages::StructuredOutput;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::config::{ConfigurationError, GenerationConfig};
use crate::error::GenerationError;
use crate::generator::{Generation, Usage};
use crate::remote::{Asked, Wire};
use crate::settings::Protocol;
use crate::transport::secret_header;
use crate::wording;

const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));

/// The protocol.
#[derive(Debug)]
pub(crate) struct Anthropic;

impl Wire for Anthropic {
    const BASE_URL: &'static str = "https://api.anthropic.com/v1";
    const PATH: &'static [&'static str] = &["messages"];

    fn of(_config: &GenerationConfig) -> Self {
        Self
    }

    fn protocol(_config: &GenerationConfig) -> Protocol {
        Protocol::Anthropic
    }

    fn headers(config: &GenerationConfig) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigurationError> {
        let mut headers = vec![VERSION];
        if let Some(key) = &config.api_key {
            headers.push((HeaderName::from_static("x-api-key"), secret_header(key.reveal())?));
        }
        Ok(headers)
    }

    fn write(&self, body: &mut Map<String, Value>, asked: &Asked<'_>) {
        let request = asked.request;
        let mut output = asked.settings.output_config.clone();
        let instructions = match asked.structured_output {
            StructuredOutput::JsonSchema => {
                let format = json!({ "type": "json_schema", "schema": request.schema });
                output.insert("format".to_owned(), format);
                request.instructions.to_owned()
            }
            StructuredOutput::JsonObject => wording::with_schema(request),
        };
        body.insert("max_tokens".to_owned(), asked.tokens.into());
        body.insert("system".to_owned(), instructions.into());
        body.insert("messages".to_owned(), wording::exchange(request).into());
        if !output.is_empty() {
            body.insert("output_config".to_owned(), output.into());
        }
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
