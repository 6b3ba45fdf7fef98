//! A real server on a free port over a database file, inside the test process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use powercontext_api_server::{Absence, App, AppParts, Limits, Processing, serve};
use powercontext_core::ambient::{SystemClock, SystemIds};
use powercontext_program::{ProcessingState, Work};
use powercontext_store::{DatabaseUrl, Store, StoreOptions, migrate};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Counts wakes instead of doing work.
#[derive(Default)]
pub struct CountedWakes(pub AtomicUsize);

impl Processing for CountedWakes {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn state(&self) -> ProcessingState {
        ProcessingState::Ready(Work { unanswered: 5, waves: Vec::new() })
    }
}

/// The server and a client for it.
pub struct Server {
    pub url: String,
    pub app: App,
    pub client: reqwest::Client,
    pub stop: oneshot::Sender<()>,
    pub serving: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn code(&self) -> &str {
        self.body.pointer("/error/code").and_then(Value::as_str).unwrap_or("")
    }

    /// What is wrong with the request: the type and the path without `body` of each problem.
    pub fn problems(&self) -> Value {
        let errors = self.body.pointer("/error/details/errors").and_then(Value::as_array).unwrap();
        let short = |error: &Value| {
            let mut short = error["loc"].as_array().unwrap().clone();
            assert_eq!(short[0], "body");
            short[0] = error["type"].clone();
            Value::Array(short)
        };
        errors.iter().map(short).collect()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

pub async fn server(processing: Option<Arc<dyn Processing>>) -> Server {
    server_with(processing, Limits::new(2_000_000, 32)).await
}

pub async fn server_with(processing: Option<Arc<dyn Processing>>, limits: Limits) -> Server {
    server_of(processing.ok_or(Absence::NotConfigured), limits).await
}

pub async fn server_of(processing: Result<Arc<dyn Processing>, Absence>, limits: Limits) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions::new(DatabaseUrl::file(&folder.path().join("test.sqlite3")));
    migrate(&options, &SystemIds).await.unwrap();
    let app = App::new(AppParts {
        store: Store::open(&options).await.unwrap(),
        ids: Arc::new(SystemIds),
        clock: Arc::new(SystemClock::start()),
        processing,
        limits,
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(serve(listener, app.clone(), async {
        let _ = stopped.await;
    }));
    Server { url, app, client: reqwest::Client::new(), stop, serving, _folder: folder }
}

impl Server {
    pub async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let body = body.map(|body| ("application/json", body.to_string().into_bytes()));
        self.raw(method, path, body).await
    }

    pub async fn raw(&self, method: &str, path: &str, body: Option<(&str, Vec<u8>)>) -> Answer {
        let method = method.parse::<reqwest::Method>().unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        request = request.header("x-powercontext-request-id", "mine");
        if let Some((content_type, bytes)) = body {
            request = request.header("content-type", content_type).body(bytes);
        }
        answer(request).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, Some(body)).await
    }

    pub async fn scope(&self, key: &str) -> String {
        let body = json!({"title": "T", "summary": "S", "idempotency_key": key});
        let answer = self.post("/v1/scopes", body).await;
        assert_eq!(answer.status, 201);
        answer.body["scope_id"].as_str().unwrap().to_owned()
    }
}

/// Sends a request and reads its answer to the end.
pub async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.unwrap();
    let id = headers.get("x-powercontext-request-id").expect("every answer has a request id");
    assert!(!id.is_empty() && id != "mine");
    let mut reader = serde_json::Deserializer::from_str(&text);
    reader.disable_recursion_limit();
    Answer { status, headers, body: Value::deserialize(&mut reader).unwrap_or(Value::Null) }
}
