//! A model endpoint over real HTTP that answers what a test tells it to, as OpenAI and as Anthropic.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};

type Script = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

/// What the endpoint answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A finished answer with this text.
    Text(String),
    /// An HTTP error with this status.
    Status(u16),
    /// An HTTP error with this status that asks to be left alone for so many seconds.
    Wait(u16, u32),
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its JSON body.
    pub body: Value,
}

/// A model endpoint on a free port; stops with the test's runtime.
#[derive(Clone)]
pub struct Model {
    /// To be used as the generation base URL, for either protocol.
    pub base_url: String,
    requests: Arc<Mutex<Vec<Asked>>>,
}

#[derive(Clone)]
struct Shared {
    script: Script,
    requests: Arc<Mutex<Vec<Asked>>>,
}

impl Model {
    /// Starts an endpoint that answers each request body with `script`.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start(script: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let shared = Shared { script: Arc::new(script), requests: requests.clone() };
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/v1/messages", post(message))
            .with_state(shared);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address: SocketAddr = listener.local_addr().expect("its address");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base_url: format!("http://{address}/v1"), requests }
    }

    /// How many requests have arrived.
    #[must_use]
    pub fn count(&self) -> usize {
        self.requests().len()
    }

    /// The requests that have arrived.
    ///
    /// # Panics
    /// When a handler panicked while it held the list.
    #[must_use]
    pub fn requests(&self) -> Vec<Asked> {
        self.requests.lock().expect("the list of requests").clone()
    }
}

impl Shared {
    fn answer(&self, headers: HeaderMap, body: &str, finished: impl Fn(String) -> Value) -> Response {
        let body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        let reply = (self.script)(&body);
        self.requests.lock().expect("the list of requests").push(Asked { headers, body });
        let status = |code| StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        match reply {
            Reply::Status(code) => status(code).into_response(),
            Reply::Wait(code, seconds) => {
                (status(code), [("retry-after", seconds.to_string())]).into_response()
            }
            Reply::Text(text) => axum::Json(finished(text)).into_response(),
        }
    }
}

async fn complete(State(shared): State<Shared>, headers: HeaderMap, body: String) -> Response {
    shared.answer(headers, &body, |text| {
        json!({
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        })
    })
}

async fn message(State(shared): State<Shared>, headers: HeaderMap, body: String) -> Response {
    shared.answer(headers, &body, |text| {
        json!({
            "type": "message", "role": "assistant", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": 10, "output_tokens": 5}
        })
    })
}
