//! Minutes of jobs that come, run and are removed again: whether the speed and the size of the file stay level.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use windlass::store::{Retention, Store};
use windlass::worker::upkeep_until;

use super::measure::{Ahead, Measurement, Setting, consume, loops, produce, stop};

/// What a stretch of the run has seen so far: jobs, and how long each call took.
type Seen = Arc<Mutex<(usize, Vec<Duration>)>>;

/// An end-to-end run beside the usual upkeep, which removes jobs `keep` after their end; a measurement for every stretch.
pub(super) async fn run(
    store: Arc<dyn Store>,
    setting: &Setting,
    (keep, every): (Duration, Duration),
    mut tell: impl FnMut(&Measurement) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let retention = Retention { completed: Some(keep), ..Retention::default() };
    let (ahead, seen) = (Arc::new(Ahead::default()), Seen::default());
    let producers = produce(&store, setting, &ahead)?;
    let step = {
        let (store, ahead, seen, batch) = (store.clone(), ahead.clone(), seen.clone(), setting.batch);
        move || {
            let (store, ahead, seen) = (store.clone(), ahead.clone(), seen.clone());
            async move {
                let before = Instant::now();
                let done = consume(store.as_ref(), batch, &ahead).await?;
                let mut seen = seen.lock().expect("nobody panics with it");
                seen.0 += done;
                seen.1.push(before.elapsed());
                Ok(done)
            }
        }
    };
    let mut telling = async || {
        loop {
            let start = Instant::now();
            tokio::time::sleep(every).await;
            let (jobs, calls) = std::mem::take(&mut *seen.lock().expect("nobody panics with it"));
            let mut one = Measurement::new("churn", setting, jobs, start.elapsed(), calls);
            (one.file_mb, one.log_mb) = (megabytes(&setting.store, ""), megabytes(&setting.store, "-wal"));
            tell(&one)?;
        }
    };
    let done = tokio::select! {
        done = loops(setting, setting.callers, step) => done.map(|_| ()),
        told = telling() => told,
        () = upkeep_until(store.as_ref(), retention, std::future::pending::<()>()) => Ok(()),
    };
    stop(producers, &ahead).await?;
    done
}

/// The size of a SQLite file, or of one beside it.
fn megabytes(store: &str, end: &str) -> Option<f64> {
    let path = store.strip_prefix("sqlite:")?;
    let size = std::fs::metadata(format!("{path}{end}")).ok()?.len();
    Some(size as f64 / f64::from(1 << 20))
}
