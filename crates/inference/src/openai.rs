//! The OpenAI chat completions protocol, for OpenAI itself and for compatible endpoints.
//!
//! One call sends exactly one request: no tool, no stored history, no background work (TM-079,
//! TM-082). Whatever comes back is sorted into one class of [`GenerationError`].

use powercontext_core::endpoint::OutputLimit;
use powercontext_core::stages::StructuredOutput;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::config::{ConfigurationError, GenerationConfig};
use crate::error::GenerationError;
use crate::generator::{Generation, Usage};
use crate::remote::{Asked, Wire};
use crate::settings::Protocol;
use crate::transport::secret_header;
use crate::wording;

/// OpenAI's own base URL.
pub(crate) const BASE_URL: &str = "https://api.openai.com/v1";

/// What servers call a response that is to be continued; others call a finished one by many words.
const UNFINISHED: [&str; 6] =
    ["queued", "pending", "in_progress", "requires_action", "incomplete", "suspended"];

/// The protocol, with the field that limits an answer.
#[derive(Debug)]
pub(crate) struct OpenAi {
    output_limit: OutputLimit,
}

impl Wire for OpenAi {
    const BASE_URL: &'static str = BASE_URL;
    const PATH: &'static [&'static str] = &["chat", "completions"];

    fn of(config: &GenerationConfig) -> Self {
        Self { output_limit: config.output_limit }
    }

    fn protocol(config: &GenerationConfig) -> Protocol {
        if config.base_url.is_none() { Protocol::OpenAi } else { Protocol::Compatible }
    }

    fn headers(config: &GenerationConfig) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigurationError> {
        let key = config.api_key.as_ref().map(|key| secret_header(&format!("Bearer {}", key.reveal())));
        Ok(key.transpose()?.map(|key| (AUTHORIZATION, key)).into_iter().collect())
    }

    fn write(&self, body: &mut Map<String, Value>, asked: &Asked<'_>) {
        let request = asked.request;
        let (instructions, format) = match asked.structured_output {
            StructuredOutput::JsonSchema => (
                request.instructions.to_owned(),
                json!({
                    "type": "json_schema",
                    "json_schema": { "name": request.stage.as_str(), "strict": true, "schema": request.schema },
                }),
            ),
            StructuredOutput::JsonObject => (wording::with_schema(request), json!({ "type": "json_object" })),
        };
        let mut messages = vec![json!({ "role": "system", "content": instructions })];
        messages.extend(wording::exchange(request));
        let limit = match self.output_limit {
            OutputLimit::MaxCompletionTokens => "max_completion_tokens",
            OutputLimit::MaxTokens => "max_tokens",
        };
        body.insert("messages".to_owned(), messages.into());
        body.insert("response_format".to_owned(), format);
        body.insert(limit.to_owned(), asked.tokens.into());
    }

    /// Sorts a successful response by what its one choice says.
    fn answer(body: &[u8], usage: Option<Usage>) -> Result<Generation, GenerationError> {
        let unreadable = GenerationError::Unreadable { usage };
        let Ok(Completion { choices, status }) = serde_json::from_slice(body) else { return Err(unreadable) };
        let status = status.as_ref().and_then(Value::as_str);
        if status.is_some_and(|word| UNFINISHED.contains(&word)) {
            return Err(GenerationError::Suspended { usage });
        }
        let Ok([Choice { finish_reason, message }]) = <[Choice; 1]>::try_from(choices) else {
            return Err(unreadable);
        };
        if message.refusal.is_some_and(|text| !text.is_empty()) {
            return Err(GenerationError::Refused { usage });
        }
        if message.tool_calls.is_some_and(|calls| !calls.is_empty()) || message.function_call.is_some() {
            return Err(GenerationError::Suspended { usage });
        }
        match finish_reason.as_deref() {
            Some("length") => Err(GenerationError::Truncated { usage }),
            Some("content_filter") => Err(GenerationError::Filtered { usage }),
            // Some compatible endpoints leave the reason out of a finished answer.
            Some("stop") | None => match message.content {
                Some(text) => Ok(Generation { text, usage: usage.unwrap_or_default() }),
                None => Err(unreadable),
            },
            // tool_calls, and every way of suspending an answer there may ever be.
            Some(_) => Err(GenerationError::Suspended { usage }),
        }
    }
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    /// Told by servers that hand out unfinished work.
    #[serde(default)]
    status: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    finish_reason: Option<String>,
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Value>>,
    #[serde(default)]
    function_call: Option<Value>,
}
