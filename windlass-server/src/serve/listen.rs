//! Connections: how many, how slow, how long.
//!
//! Every bound of a connection is here: their number, the time for a request's head, its size, and the time for which a
//! client may leave an answer unread. A few connections beyond the number are taken all the same, for health and
//! metrics alone, so that a full server can still say that it is well.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::config::{Limits, Settings};
use super::guard::Guard;
use super::metrics;
use super::tls::Tls;
use crate::sparing::Sparing;

/// Ports looked at beyond the usual one before giving up.
const PORTS_TRIED: u16 = 20;
/// Connections beyond the usual number, for health and metrics.
const RESERVE: usize = 32;
/// A connection beyond the usual number is given no longer to say what it wants.
const CROWDED_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed accept, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// Says that accepting fails, now and then.
static FAILED: Sparing = Sparing::new(Duration::from_secs(5));

/// Binds the address, or the next free port where any will do; says whether it had to move.
pub(super) async fn bind(settings: &Settings) -> anyhow::Result<(TcpListener, bool)> {
    let wanted = settings.listen;
    let last = if settings.any_port { wanted.port().saturating_add(PORTS_TRIED) } else { wanted.port() };
    for port in wanted.port()..=last {
        match TcpListener::bind(SocketAddr::new(wanted.ip(), port)).await {
            Ok(listener) => return Ok((listener, port != wanted.port())),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port < last => {}
            Err(error) => return Err(error).with_context(|| format!("cannot listen on {}:{port}", wanted.ip())),
        }
    }
    anyhow::bail!("cannot listen on {wanted}: the ports up to {last} are taken")
}

/// Accepts connections until `stopping`, then lets requests under way finish; those that have not by `cut` are cut off.
pub(super) async fn serve(
    listener: TcpListener,
    guard: Arc<Guard>,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    stopping: CancellationToken,
    cut: CancellationToken,
) {
    let usual = Arc::new(Semaphore::new(limits.connections));
    let reserve = Arc::new(Semaphore::new(RESERVE));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopping.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                FAILED.say(|left_out| tracing::warn!(%error, left_out, "cannot accept a connection; trying again"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (permit, crowded) = match Arc::clone(&usual).try_acquire_owned() {
            Ok(permit) => (permit, false),
            Err(_) => match Arc::clone(&reserve).try_acquire_owned() {
                Ok(permit) => (permit, true),
                Err(_) => {
                    metrics::refused("connections");
                    continue;
                }
            },
        };
        let (guard, stopping, cut) = (Arc::clone(&guard), stopping.clone(), cut.clone());
        let acceptor = tls.as_deref().map(Tls::acceptor);
        tokio::spawn(async move {
            metrics::connections(1.0);
            let served = Served { guard, peer: peer.ip(), crowded };
            let _ = stream.set_nodelay(true);
            match acceptor {
                None => connection(stream, served, limits, stopping, cut).await,
                // Who is slow to greet is treated as who is slow to ask.
                Some(acceptor) => match tokio::time::timeout(limits.header_timeout, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, served, limits, stopping, cut).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a connection could not be secured"),
                    Err(_) => metrics::refused("slow head"),
                },
            }
            metrics::connections(-1.0);
            drop(permit);
        });
    }
    drop(listener);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let done = async { tokio::join!(usual.acquire_many(all), reserve.acquire_many(RESERVE as u32)) };
    tokio::select! {
        _ = done => {}
        () = cut.cancelled() => {}
    }
}

/// Who is served on a connection, and by whom.
#[derive(Clone)]
struct Served {
    guard: Arc<Guard>,
    peer: IpAddr,
    crowded: bool,
}

async fn connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    served: Served,
    limits: Limits,
    stopping: CancellationToken,
    cut: CancellationToken,
) {
    let io = TokioIo::new(Impatient { stream, after: limits.write_timeout, waiting: None });
    let crowded = served.crowded;
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let Served { guard, peer, crowded } = served.clone();
        async move { Ok::<_, std::convert::Infallible>(guard.answer(request.map(Body::new), peer, crowded).await) }
    });
    let mut builder = http1::Builder::new();
    let patience = if crowded { CROWDED_TIMEOUT } else { limits.header_timeout };
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_headers(limits.headers)
        .max_buf_size(limits.header_bytes)
        .keep_alive(!crowded);
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = cut.cancelled() => return,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = cut.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        if error.is_timeout() {
            metrics::refused("slow head");
        }
        // Clients that go away, stall or talk nonsense are nothing to warn of.
        tracing::debug!(%error, "a connection ended early");
    }
}

/// A connection that ends when its client leaves what it asked for unread for too long.
struct Impatient<S> {
    stream: S,
    after: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// Passes on the outcome of a write, unless writes have been waiting for too long.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waiting = None;
            return outcome;
        }
        let after = self.after;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + after)));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.bounded(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.bounded(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.bounded(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bounded(cx, outcome)
    }
}
