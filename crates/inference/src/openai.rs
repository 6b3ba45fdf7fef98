//! The OpenAI chat completions protocol, for OpenAI itself and for compatible endpoints.
//!
//! One call sends exactly one request: no transport retry, no redirect, no tool, no stored history
//! (TM-079, TM-082). Whatever comes back is sorted into one class of [`GenerationError`]; usage is
//! read before the content is looked at. The worker decides what to do about either.

use std::time::Duration;

use async_trait::async_trait;
use powercontext_core::stages::StructuredOutput;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::{ConfigurationError, GenerationConfig};
use crate::error::GenerationError;
use crate::generator::{Generation, GenerationRequest, Generator, Usage};

const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";
/// The largest response read, in bytes; far above any allowed answer.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;
/// The longest wait a provider can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// One model behind one endpoint.
#[derive(Debug)]
pub(crate) struct OpenAi {
    model: String,
    name_at: usize,
    endpoint: Url,
    authorization: Option<HeaderValue>,
    structured_output: StructuredOutput,
    timeout: Duration,
    client: Client,
}

impl OpenAi {
    /// Checks the endpoint's settings and sets up its client; sends nothing.
    pub(crate) fn new(name: &str, config: &GenerationConfig) -> Result<Self, ConfigurationError> {
        if config.timeout.is_zero() {
            return Err(ConfigurationError::InvalidTimeout);
        }
        if config.base_url.is_none() && config.api_key.is_none() {
            return Err(ConfigurationError::MissingKey { model: config.model.clone() });
        }
        let authorization = match &config.api_key {
            None => None,
            Some(key) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", key.reveal()))
                    .map_err(|_| ConfigurationError::InvalidKey)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .timeout(config.timeout)
            .user_agent(concat!("powercontext-fleet/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|source| ConfigurationError::Client { source })?;
        Ok(Self {
            name_at: config.model.len() - name.len(),
            model: config.model.clone(),
            endpoint: endpoint(config.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL))?,
            authorization,
            structured_output: config.structured_output,
            timeout: config.timeout,
            client,
        })
    }

    fn body(&self, request: &GenerationRequest<'_>) -> Value {
        let (instructions, response_format) = match self.structured_output {
            StructuredOutput::JsonSchema => (
                request.instructions.to_owned(),
                json!({
                    "type": "json_schema",
                    "json_schema": { "name": request.stage.as_str(), "strict": true, "schema": request.schema },
                }),
            ),
            StructuredOutput::JsonObject => (
                format!(
                    "{}\n\nAnswer with one JSON object that satisfies this JSON schema:\n{}",
                    request.instructions, request.schema
                ),
                json!({ "type": "json_object" }),
            ),
        };
        let mut messages = vec![
            json!({ "role": "system", "content": instructions }),
            json!({ "role": "user", "content": request.input.to_string() }),
        ];
        if let Some(correction) = request.correction {
            messages.push(json!({ "role": "assistant", "content": correction.answer }));
            messages.push(json!({
                "role": "user",
                "content": format!(
                    "That answer was not accepted: {}. Give the complete corrected JSON object.",
                    correction.problem
                ),
            }));
        }
        json!({
            "model": &self.model[self.name_at..],
            "messages": messages,
            "response_format": response_format,
            "max_completion_tokens": request.max_output_tokens,
        })
    }

    fn transport(&self, source: reqwest::Error) -> GenerationError {
        if source.is_timeout() {
            GenerationError::Timeout { after: self.timeout }
        } else {
            GenerationError::Unreachable { usage: None, source: Some(source.without_url()) }
        }
    }

    /// Reads the whole body; `None` when it is larger than a response may be.
    async fn read(&self, mut response: Response) -> Result<Option<Vec<u8>>, GenerationError> {
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.transport(error))? {
            if body.len() + part.len() > MAX_RESPONSE_BYTES {
                return Ok(None);
            }
            body.extend_from_slice(&part);
        }
        Ok(Some(body))
    }
}

#[async_trait]
impl Generator for OpenAi {
    fn model(&self) -> &str {
        &self.model
    }

    async fn generate(&self, request: &GenerationRequest<'_>) -> Result<Generation, GenerationError> {
        let mut call = self.client.post(self.endpoint.clone()).json(&self.body(request));
        if let Some(value) = &self.authorization {
            call = call.header(AUTHORIZATION, value.clone());
        }
        let response = call.send().await.map_err(|error| self.transport(error))?;
        let status = response.status();
        let retry_after = retry_after(response.headers());
        if status.is_success() {
            return match self.read(response).await? {
                Some(body) => answer(&body),
                None => Err(GenerationError::Truncated { usage: None }),
            };
        }
        // An error's status is known already: a body that breaks off must not hide it.
        let body = self.read(response).await.ok().flatten().unwrap_or_default();
        Err(failure(status, retry_after, &body))
    }
}

fn endpoint(base: &str) -> Result<Url, ConfigurationError> {
    let mut url = Url::parse(base.trim()).map_err(|_| ConfigurationError::InvalidBaseUrl)?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if !plain {
        return Err(ConfigurationError::InvalidBaseUrl);
    }
    url.path_segments_mut()
        .map_err(|()| ConfigurationError::InvalidBaseUrl)?
        .pop_if_empty()
        .extend(["chat", "completions"]);
    Ok(url)
}

#[derive(Deserialize)]
struct UsageOnly {
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
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
}

#[derive(Deserialize)]
struct Problem {
    error: ProblemBody,
}

#[derive(Deserialize)]
struct ProblemBody {
    #[serde(default)]
    code: Option<Value>,
    #[serde(default, rename = "type")]
    kind: Option<Value>,
}

fn usage(body: &[u8]) -> Option<Usage> {
    let usage = serde_json::from_slice::<UsageOnly>(body).ok()?.usage?;
    Some(Usage {
        input_tokens: usage.prompt_tokens.unwrap_or(0),
        output_tokens: usage.completion_tokens.unwrap_or(0),
    })
}

/// Sorts a successful response by what its one choice says.
fn answer(body: &[u8]) -> Result<Generation, GenerationError> {
    let usage = usage(body);
    let unreadable = GenerationError::Unreachable { usage, source: None };
    let Ok(completion) = serde_json::from_slice::<Completion>(body) else {
        return Err(unreadable);
    };
    let Some(Choice { finish_reason, message }) = completion.choices.into_iter().next() else {
        return Err(unreadable);
    };
    let refused = message.refusal.is_some_and(|text| !text.is_empty())
        || message.tool_calls.is_some_and(|calls| !calls.is_empty());
    match finish_reason.as_deref() {
        _ if refused => Err(GenerationError::Refused { usage }),
        Some("length") => Err(GenerationError::Truncated { usage }),
        // Some compatible endpoints leave the reason out of a finished answer.
        Some("stop") | None => match message.content {
            Some(text) => Ok(Generation { text, usage: usage.unwrap_or_default() }),
            None => Err(unreadable),
        },
        // content_filter, tool_calls, and every way of suspending an answer there may ever be.
        Some(_) => Err(GenerationError::Refused { usage }),
    }
}

/// Sorts an unsuccessful response by its status, and a 429 by its code.
fn failure(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> GenerationError {
    let usage = usage(body);
    let overloaded = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    if overloaded && !(status == StatusCode::TOO_MANY_REQUESTS && quota_is_spent(body)) {
        GenerationError::Overloaded { status: status.as_u16(), retry_after, usage }
    } else {
        GenerationError::Rejected { status: status.as_u16(), usage }
    }
}

fn quota_is_spent(body: &[u8]) -> bool {
    serde_json::from_slice::<Problem>(body).is_ok_and(|Problem { error }| {
        [error.code, error.kind]
            .into_iter()
            .flatten()
            .any(|value| value.as_str() == Some("insufficient_quota"))
    })
}

/// `Retry-After` in seconds; its date form would need a calendar clock and is not used.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}
