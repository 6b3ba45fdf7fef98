//! The OpenAI chat completions protocol, for OpenAI itself and for compatible endpoints.
//!
//! One call sends exactly one request: no tool, no stored history, no background work (TM-079,
//! TM-082). Whatever comes back is sorted into one class of [`GenerationError`].

use async_trait::async_trait;
use powercontext_core::endpoint::OutputLimit;
use powercontext_core::stages::StructuredOutput;
use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::config::{ConfigurationError, GenerationConfig};
use crate::error::GenerationError;
use crate::generator::{Generation, GenerationRequest, Generator, MAX_RESPONSE_BYTES, Usage};
use crate::schema::require_strict;
use crate::settings::{ModelSettings, Protocol};
use crate::transport::{Endpoint, EndpointParts, secret_header};
use crate::wording;

/// OpenAI's own base URL.
pub(crate) const BASE_URL: &str = "https://api.openai.com/v1";

/// What servers call a response that is to be continued; others call a finished one by many words.
const UNFINISHED: [&str; 6] =
    ["queued", "pending", "in_progress", "requires_action", "incomplete", "suspended"];

/// One model behind one endpoint.
#[derive(Debug)]
pub(crate) struct OpenAi {
    model: String,
    name: String,
    structured_output: StructuredOutput,
    output_limit: OutputLimit,
    settings: ModelSettings,
    endpoint: Endpoint,
}

impl OpenAi {
    /// Checks the endpoint's settings and sets up its client; sends nothing.
    pub(crate) fn new(name: &str, config: &GenerationConfig) -> Result<Self, ConfigurationError> {
        if config.base_url.is_none() && config.api_key.is_none() {
            return Err(ConfigurationError::MissingKey { model: config.model.clone() });
        }
        let protocol = if config.base_url.is_none() { Protocol::OpenAi } else { Protocol::Compatible };
        let settings = ModelSettings::parse(config.settings.as_ref(), protocol)?;
        let key = config.api_key.as_ref().map(|key| secret_header(&format!("Bearer {}", key.reveal())));
        let endpoint = Endpoint::new(EndpointParts {
            base_url: config.base_url.as_deref().unwrap_or(BASE_URL),
            path: &["chat", "completions"],
            headers: key.transpose()?.map(|key| (AUTHORIZATION, key)).into_iter().collect(),
            further: config.headers.as_ref(),
            timeout: settings.timeout.map_or(config.timeout, |own| own.min(config.timeout)),
        })?;
        Ok(Self {
            model: config.model.clone(),
            name: name.to_owned(),
            structured_output: config.structured_output,
            output_limit: config.output_limit,
            settings,
            endpoint,
        })
    }

    fn body(&self, request: &GenerationRequest<'_>) -> Value {
        let (instructions, format) = match self.structured_output {
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
        let tokens = self.settings.max_tokens.unwrap_or(u64::MAX).min(request.max_output_tokens);
        let mut body = Map::new();
        body.insert("model".to_owned(), self.name.clone().into());
        body.insert("messages".to_owned(), messages.into());
        body.insert("response_format".to_owned(), format);
        body.insert(limit.to_owned(), tokens.into());
        body.extend(self.settings.body.clone());
        Value::Object(body)
    }
}

#[async_trait]
impl Generator for OpenAi {
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
