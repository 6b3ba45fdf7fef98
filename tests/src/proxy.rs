//! A network between one process and its database that a test can cut or let go silent.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to bytes on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// They pass.
    Open,
    /// Connections are closed, and new ones right after they were accepted.
    Cut,
    /// Nothing arrives and nothing is closed, as when packets are dropped; what was held back arrives
    /// once the line is open again.
    Silent,
}

/// Forwards connections on a port of its own to another one.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    line: Arc<watch::Sender<Line>>,
}

impl Proxy {
    /// Forwards to `target`; ends with the test's runtime.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start(target: u16) -> Self {
        Self::to(format!("127.0.0.1:{target}")).await
    }

    /// Forwards to `target`, a host and a port; ends with the test's runtime.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn to(target: String) -> Self {
        Self::far(target, Duration::ZERO).await
    }

    /// The same, as if every request took `distance` to get to `target`.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn far(target: String, distance: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let line = Arc::new(watch::Sender::new(Line::Open));
        let seen = line.clone();
        tokio::spawn(async move {
            loop {
                let Ok((inner, _)) = listener.accept().await else { return };
                tokio::spawn(forward(inner, (target.clone(), distance), seen.subscribe()));
            }
        });
        Self { port, line }
    }

    /// The port to connect to.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Changes what happens from now on, to connections that exist too.
    pub fn set(&self, line: Line) {
        self.line.send_replace(line);
    }
}

async fn forward(inner: TcpStream, (target, distance): (String, Duration), mut line: watch::Receiver<Line>) {
    if line.wait_for(|line| *line != Line::Silent).await.is_ok_and(|line| *line == Line::Cut) {
        return;
    }
    let Ok(outer) = TcpStream::connect(target).await else { return };
    let _ = (inner.set_nodelay(true), outer.set_nodelay(true));
    let (inner_read, inner_write) = inner.into_split();
    let (outer_read, outer_write) = outer.into_split();
    let mut cut = line.clone();
    tokio::select! {
        () = pump((inner_read, outer_write), distance, line.clone()) => {}
        () = pump((outer_read, inner_write), Duration::ZERO, line) => {}
        _ = cut.wait_for(|line| *line == Line::Cut) => {}
    }
}

/// Moves bytes one way until either end closes.
async fn pump(
    (mut from, mut to): (OwnedReadHalf, OwnedWriteHalf),
    distance: Duration,
    mut line: watch::Receiver<Line>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        if line.wait_for(|line| *line != Line::Silent).await.is_err() {
            return;
        }
        match read {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if !distance.is_zero() {
                    tokio::time::sleep(distance).await;
                }
                if to.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        port
    }

    async fn answer(stream: &mut TcpStream) -> Option<u8> {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_millis(200), stream.read_exact(&mut byte)).await;
        read.ok()?.ok()?;
        Some(byte[0])
    }

    #[tokio::test]
    async fn a_silent_line_holds_bytes_back_and_a_cut_one_closes() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        stream.write_all(b"a").await.unwrap();
        assert_eq!(answer(&mut stream).await, Some(b'a'));
        proxy.set(Line::Silent);
        stream.write_all(b"b").await.unwrap();
        assert_eq!(answer(&mut stream).await, None, "nothing arrives, nothing is closed");
        proxy.set(Line::Open);
        assert_eq!(answer(&mut stream).await, Some(b'b'), "what was held back arrives");
        proxy.set(Line::Cut);
        let mut rest = Vec::new();
        assert_eq!(stream.read_to_end(&mut rest).await.unwrap_or(0), 0, "closed");
        let mut refused = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(refused.read_to_end(&mut rest).await.unwrap_or(0), 0, "closed at once");
    }
}
