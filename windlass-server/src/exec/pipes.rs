//! What goes into a process and comes out of it, all three pipes at once, so that none can block another.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::task::JoinHandle;

/// How long after its end a process's output is waited for: something it left running may hold the pipe open.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes read at a time.
const CHUNK: usize = 16 * 1024;

/// What is kept of an output: the first bytes, or the last.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) bytes: Vec<u8>,
    /// Whether there was more.
    pub(super) cut: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keep {
    /// The first bytes, up to a bound.
    First(usize),
    /// The last bytes, up to a bound.
    Last(usize),
}

impl Kept {
    fn add(&mut self, chunk: &[u8], keep: Keep) {
        match keep {
            Keep::First(most) => {
                let room = most.saturating_sub(self.bytes.len());
                self.cut |= chunk.len() > room;
                self.bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            }
            Keep::Last(most) => {
                self.bytes.extend_from_slice(chunk);
                let excess = self.bytes.len().saturating_sub(most);
                self.cut |= excess > 0;
                self.bytes.drain(..excess);
            }
        }
    }
}

/// An output that is being read.
///
/// Dropped before its end, it is read on: a process that is told to stop may have something to say, and would die of a
/// closed pipe before it has cleaned up.
#[derive(Debug)]
pub(super) struct Output {
    kept: Arc<Mutex<Kept>>,
    reading: JoinHandle<()>,
}

impl Output {
    /// Reads to the end, and keeps some of it.
    pub(super) fn read(mut from: impl AsyncRead + Unpin + Send + 'static, keep: Keep) -> Self {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let into = Arc::clone(&kept);
        let reading = tokio::spawn(async move {
            let mut chunk = vec![0; CHUNK];
            while let Ok(read @ 1..) = from.read(&mut chunk).await {
                lock(&into).add(&chunk[..read], keep);
            }
        });
        Output { kept, reading }
    }

    /// What was kept, once the process has ended.
    pub(super) async fn kept(mut self) -> Kept {
        let _ = tokio::time::timeout(LINGER, &mut self.reading).await;
        self.reading.abort();
        std::mem::take(&mut *lock(&self.kept))
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().expect("nothing panics while it holds this lock")
}

/// Writes a payload and closes the pipe. A process that does not read it is no failure.
pub(super) fn write(mut into: ChildStdin, payload: bytes::Bytes) {
    tokio::spawn(async move {
        let _ = into.write_all(&payload).await;
        let _ = into.shutdown().await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_bounded_at_either_end() {
        let (mut first, mut last) = (Kept::default(), Kept::default());
        for chunk in [b"abc".as_slice(), b"defg"] {
            first.add(chunk, Keep::First(5));
            last.add(chunk, Keep::Last(5));
        }
        assert_eq!((first.bytes.as_slice(), first.cut), (b"abcde".as_slice(), true));
        assert_eq!((last.bytes.as_slice(), last.cut), (b"cdefg".as_slice(), true));
    }
}
