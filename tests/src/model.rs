//! A chat-completions endpoint over real HTTP that answers what a test tells it to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Value, json};

type Script = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

/// What the endpoint answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A finished answer with this text.
    Text(String),
    /// An HTTP error with this status.
    Status(u16),
}

/// A model endpoint on a free port; stops with the test's runtime.
#[derive(Clone)]
pub struct Model {
    /// To be used as the generation base URL.
    pub base_url: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

#[derive(Clone)]
struct Shared {
    script: Script,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Model {
    /// Starts an endpoint that answers each request body with `script`.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start(script: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let shared = Shared { script: Arc::new(script), requests: requests.clone() };
        let router =
            Router::new().route("/v1/chat/completions", axum::routing::post(complete)).with_state(shared);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address: SocketAddr = listener.local_addr().expect("its address");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base_url: format!("http://{address}/v1"), requests }
    }

    /// How many requests have arrived.
    ///
    /// # Panics
    /// When a handler panicked while it held the list.
    #[must_use]
    pub fn count(&self) -> usize {
        self.requests.lock().expect("the list of requests").len()
    }
}

async fn complete(State(shared): State<Shared>, body: String) -> axum::response::Response {
    let body: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
    let reply = (shared.script)(&body);
    shared.requests.lock().expect("the list of requests").push(body);
    match reply {
        Reply::Status(code) => {
            StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).into_response()
        }
        Reply::Text(text) => axum::Json(json!({
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        }))
        .into_response(),
    }
}
