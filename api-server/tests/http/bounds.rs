//! What slow, idle and too many clients can do to others: nothing.

use std::time::Duration;

use powercontext_api_server::Limits;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Server, server_with};

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(600);

fn limits() -> Limits {
    let (max_slow_bodies, max_connections) = (4, 64);
    Limits {
        max_slow_bodies,
        max_connections,
        body_stall: LONG,
        body_time: LONG,
        header_time: LONG,
        ..Limits::new(100_000, 2)
    }
}

async fn connect(server: &Server, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// A request whose body has begun and does not go on.
async fn half_a_body(server: &Server) -> TcpStream {
    let head = "POST /v1/scopes HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{";
    connect(server, head).await
}

async fn status(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.lines().next().unwrap_or("closed").to_owned()
}

/// Waits until a condition holds; a test that hangs is ended by the test runner.
async fn until(mut condition: impl AsyncFnMut() -> bool) {
    while !condition().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn slow_bodies_take_no_place_from_other_requests() {
    let server = server_with(None, limits()).await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(half_a_body(&server).await);
    }
    // One more than may be slow at once is turned away, so the four are all being waited for.
    let mut fifth = half_a_body(&server).await;
    assert!(status(&mut fifth).await.contains("503"));
    for key in ["a", "b", "c"] {
        server.scope(key).await;
    }
    assert_eq!(server.get("/v1/capabilities").await.status, 200);
    let rest = format!("\"title\":\"T\",\"summary\":\"S\",\"idempotency_key\":\"slow\"{}}}", " ".repeat(39));
    let first = slow.first_mut().unwrap();
    first.write_all(&rest.as_bytes()[..89]).await.unwrap();
    let mut answer = [0; 12];
    first.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 422", "a slow body is read to its end");
}

#[tokio::test]
async fn a_body_that_stalls_or_takes_too_long_is_given_up() {
    let short = Duration::from_millis(150);
    for bounds in [Limits { body_stall: short, ..limits() }, Limits { body_time: short, ..limits() }] {
        let server = server_with(None, bounds).await;
        let mut slow = half_a_body(&server).await;
        let mut answer = vec![0; 4_096];
        let length = slow.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request_timeout"), "{answer}");
    }
}

#[tokio::test]
async fn all_bodies_together_have_a_bounded_memory() {
    let server = server_with(None, Limits { max_body_memory_bytes: 64 * 1024, ..limits() }).await;
    let body = |length: usize| json!({"content": "x".repeat(length)});
    let scope = server.scope("s").await;
    let sources = format!("/v1/scopes/{scope}/sources");
    let refused = server.post(&sources, body(70_000)).await;
    assert_eq!((refused.status, refused.code()), (503, "server_overloaded"));
    assert_eq!(refused.header("retry-after"), "1");
    for _ in 0..5 {
        assert_eq!(server.post(&sources, body(60_000)).await.status, 201, "memory comes back");
    }
}

#[tokio::test]
async fn a_full_server_turns_requests_away_but_answers_health_checks() {
    let server = server_with(None, limits()).await;
    let places = server.app.permits().acquire_many(2).await.unwrap();
    for path in ["/v1/capabilities", "/v1/scopes", "/nowhere"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.code()), (503, "server_overloaded"), "{path}");
    }
    assert_eq!(server.get("/health/live").await.status, 200);
    assert_eq!(server.get("/health/ready").await.status, 200);
    drop(places);
    assert_eq!(server.get("/v1/capabilities").await.status, 200);
}

#[tokio::test]
async fn a_head_that_does_not_end_and_an_idle_connection_are_closed() {
    let server = server_with(None, Limits { header_time: Duration::from_millis(100), ..limits() }).await;
    for text in ["", "GET /health/live HTTP/1.1\r\nhost:"] {
        let mut stream = connect(&server, text).await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_one_to_end() {
    let server = server_with(None, Limits { max_connections: 1, ..limits() }).await;
    let first = connect(&server, "").await;
    let mut second =
        connect(&server, "GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(100), second.read(&mut byte)).await;
    assert!(early.is_err(), "nothing is answered yet");
    drop(first);
    assert_eq!(status(&mut second).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_stop_waits_for_requests_and_not_for_connections() {
    let server = server_with(None, limits()).await;
    let _idle = connect(&server, "").await;
    let _half_a_head = connect(&server, "GET /health/live HTTP/1.1\r\nhost:").await;
    let mut rested = connect(&server, "GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut answer = [0; 12];
    rested.read_exact(&mut answer).await.unwrap();
    let Server { stop, mut serving, url, .. } = server;
    let address = url.trim_start_matches("http://").to_owned();
    // A request in progress: its body is on the way.
    let body = "{\"title\":\"T\",\"summary\":\"S\",\"idempotency_key\":\"late\"}";
    let head = format!(
        "POST /v1/scopes HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut late = TcpStream::connect(&address).await.unwrap();
    late.write_all(head.as_bytes()).await.unwrap();
    // Its head must have arrived; only then is it in progress.
    tokio::time::sleep(Duration::from_millis(200)).await;
    stop.send(()).unwrap();
    until(async || TcpStream::connect(&address).await.is_err()).await;
    assert!(
        tokio::time::timeout(Duration::from_millis(500), &mut serving).await.is_err(),
        "one is in progress"
    );
    late.write_all(body.as_bytes()).await.unwrap();
    assert_eq!(status(&mut late).await, "HTTP/1.1 201 Created");
    serving.await.unwrap();
}
