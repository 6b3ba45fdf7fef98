//! A provider over a real connection that replies whatever a test tells it to, whole or broken.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use powercontext_core::secret::Secret;
use powercontext_core::stages::Stage;
use powercontext_inference::{
    Correction, Generation, GenerationConfig, GenerationError, GenerationRequest, generator,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub const KEY: &str = "sk-never-shown-1";
pub const HEADER: &str = "header-never-shown-1";
pub const SOURCE: &str = "the captured text 租约";
/// Stands in every body that must not be seen again.
pub const SAID: &str = "model said";

/// What a connection is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A whole response.
    Whole { status: u16, headers: Vec<(&'static str, &'static str)>, body: Vec<u8> },
    /// A response that promises more than it sends, then closes.
    CutOff { status: u16, body: Vec<u8> },
    /// A head and no body, for ever.
    Stalled,
    /// Nothing, and the connection is closed.
    Closed,
    /// Nothing, for ever.
    Silent,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        Self::text(status, &body.to_string())
    }

    pub fn text(status: u16, body: &str) -> Self {
        Self::Whole { status, headers: Vec::new(), body: body.as_bytes().to_vec() }
    }

    pub fn with(self, name: &'static str, value: &'static str) -> Self {
        match self {
            Self::Whole { status, mut headers, body } => {
                headers.push((name, value));
                Self::Whole { status, headers, body }
            }
            other => other,
        }
    }
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The provider; stops with the test's runtime.
pub struct Stub {
    pub base_url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Stub {
    /// Gives the replies in order, the last one for ever.
    pub async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let list = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(connection, Arc::clone(&list), replies.clone()));
            }
        });
        Self { base_url, seen }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The only request there was.
    pub fn only(&self) -> Seen {
        let mut seen = self.seen();
        assert_eq!(seen.len(), 1, "exactly one request is sent");
        seen.remove(0)
    }
}

async fn serve(mut connection: TcpStream, list: Arc<Mutex<Vec<Seen>>>, replies: Vec<Reply>) {
    let Some(seen) = request(&mut connection).await else { return };
    let place = {
        let mut list = list.lock().unwrap();
        list.push(seen);
        list.len() - 1
    };
    let reply = replies.get(place).or(replies.last()).cloned().unwrap();
    let head = |status: u16, length: usize| {
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n")
    };
    let (bytes, then_wait) = match reply {
        Reply::Closed => (Vec::new(), false),
        Reply::Silent => (Vec::new(), true),
        Reply::Stalled => ((head(200, 10) + "\r\n").into_bytes(), true),
        Reply::CutOff { status, body } => {
            ([(head(status, body.len() + 100) + "\r\n").into_bytes(), body].concat(), false)
        }
        Reply::Whole { status, headers, body } => {
            let mut head = head(status, body.len());
            for (name, value) in headers {
                head += &format!("{name}: {value}\r\n");
            }
            ([(head + "\r\n").into_bytes(), body].concat(), false)
        }
    };
    // A client that has read enough may be gone.
    let _ = connection.write_all(&bytes).await;
    if then_wait {
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    let _ = connection.shutdown().await;
}

async fn request(connection: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if connection.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let (line, rest) = head.split_once("\r\n").unwrap();
    let split = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers: Vec<(String, String)> = rest.split("\r\n").map(split).collect();
    let length: usize = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().unwrap();
    while bytes.len() < end + 4 + length {
        connection.read_buf(&mut bytes).await.ok()?;
    }
    let body = serde_json::from_slice(&bytes[end + 4..]).unwrap();
    Some(Seen { line: line.to_owned(), headers, body })
}

/// A configuration of a model of this provider, with a key and a secret header.
pub fn config(provider: &str, stub: &Stub) -> GenerationConfig {
    GenerationConfig {
        base_url: Some(stub.base_url.clone()),
        api_key: Some(Secret::new(KEY)),
        headers: Some(Secret::new(json!({ "x-gateway": HEADER }).to_string())),
        timeout: Duration::from_secs(20),
        ..GenerationConfig::new(format!("{provider}:some-model"))
    }
}

pub fn schema() -> Value {
    let list = json!({ "type": "array", "items": { "type": "string" } });
    json!({ "type": "object", "properties": { "probes": list }, "required": ["probes"], "additionalProperties": false })
}

pub fn input() -> Value {
    json!({ "sources": [{ "evidence_id": "s1", "content": SOURCE }] })
}

/// Asks once; whatever goes wrong tells nothing that was sent or received.
pub async fn ask(
    config: &GenerationConfig,
    correction: Option<&Correction>,
) -> Result<Generation, GenerationError> {
    let (input, schema) = (input(), schema());
    let request = GenerationRequest {
        stage: Stage::Probe,
        instructions: "Name what to look for.",
        input: &input,
        schema: &schema,
        correction,
        max_output_tokens: 777,
    };
    let result = generator(config).unwrap().generate(&request).await;
    if let Err(error) = &result {
        let shown = format!("{error} {error:?} {}", powercontext_core::failure::chain(error));
        for hidden in [KEY, HEADER, SOURCE, SAID, "/v1"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }
    result
}
