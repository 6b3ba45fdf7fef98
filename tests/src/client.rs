//! A plain JSON client of the HTTP contract for tests: no types of the product, no retries.

use std::time::Duration;

use serde_json::{Value, json};

/// One HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The JSON body; null when there is none.
    pub body: Value,
    /// Header names (lower case) and values.
    pub headers: Vec<(String, String)>,
}

impl Answer {
    /// The value of a header, by its lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The stable code of an error answer.
    #[must_use]
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("")
    }
}

/// Talks to one server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base_url: String,
}

impl Client {
    /// A client of the server at `base_url`.
    ///
    /// # Panics
    /// When the HTTP client cannot be built.
    #[must_use]
    pub fn new(base_url: &str) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(30))
            .build()
            .expect("an HTTP client");
        Self { http, base_url: base_url.trim_end_matches('/').to_owned() }
    }

    /// Sends a request; `None` when no answer came.
    pub async fn try_send(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let mut request = self.http.request(method, format!("{}{path}", self.base_url));
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_str().unwrap_or("").to_owned()))
            .collect();
        let bytes = response.bytes().await.ok()?;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Some(Answer { status, body, headers })
    }

    /// GET; `None` when no answer came.
    pub async fn try_get(&self, path: &str) -> Option<Answer> {
        self.try_send(reqwest::Method::GET, path, None).await
    }

    /// POST; `None` when no answer came.
    pub async fn try_post(&self, path: &str, body: &Value) -> Option<Answer> {
        self.try_send(reqwest::Method::POST, path, Some(body)).await
    }

    /// GET.
    ///
    /// # Panics
    /// When no answer came.
    pub async fn get(&self, path: &str) -> Answer {
        self.try_get(path).await.expect("an answer")
    }

    /// POST.
    ///
    /// # Panics
    /// When no answer came.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.try_post(path, body).await.expect("an answer")
    }

    /// Creates a Scope and returns its id.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn create_scope(&self, key: &str) -> String {
        let body = json!({"title": key, "summary": "Made by a test.", "idempotency_key": key});
        let answer = self.post("/v1/scopes", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.body["scope_id"].as_str().expect("a scope id").to_owned()
    }

    /// Captures one text and returns its position.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn capture(&self, scope: &str, source: &str, text: &str) -> i64 {
        let body = json!({"scope_id": scope, "source_id": source, "content": text});
        let answer = self.post("/v1/sources/content", &body).await;
        assert_eq!(answer.status, 202, "{}", answer.body);
        answer.body["position"].as_i64().expect("a position")
    }

    /// Flushes a Scope and returns `accepted` or `idle`.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn flush(&self, scope: &str) -> String {
        let answer = self.post("/v1/topic-memory/flush", &json!({"scope_id": scope})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body["status"].as_str().expect("a status").to_owned()
    }

    /// Waits until a flush finds nothing left to do.
    ///
    /// # Panics
    /// When that takes more than `limit`.
    pub async fn flush_until_idle(&self, scope: &str, limit: Duration) {
        let mut waited = Duration::ZERO;
        let pause = Duration::from_millis(100);
        while self.flush(scope).await != "idle" {
            assert!(waited < limit, "scope `{scope}` is still behind after {limit:?}");
            tokio::time::sleep(pause).await;
            waited += pause;
        }
    }

    /// Searches Topics and returns the hits.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn search(&self, scope: &str, query: &str) -> Vec<Value> {
        let body = json!({"scope_id": scope, "query": query, "limit": 20});
        let answer = self.post("/v1/topic-memory/search", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body["hits"].as_array().expect("hits").clone()
    }
}
