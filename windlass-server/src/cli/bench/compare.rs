//! Several runs, each on a store of its own: medians with their range, and of two builds in turn the ratios of their medians,
//! which a busy machine does not spoil as it does figures.

use std::path::Path;
use std::process::Stdio;

use anyhow::Context;
use serde_json::Value;
use tokio::process::Command;
use tokio_postgres::NoTls;

/// What is compared: a name, the member of a measurement, and whether more of it is better.
const COMPARED: [(&str, &str, bool); 5] = [
    ("jobs/s", "jobs_per_s", true),
    ("p50 ms", "p50_ms", false),
    ("p99 ms", "p99_ms", false),
    ("log B/job", "log_bytes_per_job", false),
    ("server µs/job", "server_us_per_job", false),
];

/// How often a build runs where nothing else is said.
pub(super) const ROUNDS_DEFAULT: usize = 5;

/// Runs this build so often, and prints medians with their range.
pub(super) async fn repeat(store: &str, arguments: &[String], rounds: usize) -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let mut found = Vec::new();
    for _ in 0..rounds.max(1) {
        found.push(measure(&own, store, arguments).await?);
    }
    println!("{:<14} {:>26}", "", "median (range)");
    for (name, member, _) in COMPARED {
        if let Some(spread) = Spread::of(&found, member) {
            println!("{name:<14} {:>26}", spread.shown());
        }
    }
    println!("Medians of {} runs, each on a new store.", rounds.max(1));
    Ok(())
}

/// Runs the other build and this one in turn, each on a store of its own, and prints the ratios.
pub(super) async fn run(other: &Path, store: &str, arguments: &[String], rounds: usize) -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        // Whichever goes first finds the machine otherwise than the second.
        let mut turns = [(other, &mut theirs), (own.as_path(), &mut ours)];
        if round % 2 == 1 {
            turns.reverse();
        }
        for (build, found) in turns {
            found.push(measure(build, store, arguments).await?);
        }
    }
    println!("{:<14} {:>26} {:>26} {:>7}", "", "other: median (range)", "this: median (range)", "ratio");
    for (name, member, more_is_better) in COMPARED {
        let (Some(theirs), Some(ours)) = (Spread::of(&theirs, member), Spread::of(&ours, member)) else { continue };
        let ratio = if more_is_better { ours.median / theirs.median } else { theirs.median / ours.median };
        println!("{name:<14} {:>26} {:>26} {ratio:>7.2}", theirs.shown(), ours.shown());
    }
    println!("A ratio above 1 says that this build is better, in medians of {} runs each.", rounds.max(1));
    Ok(())
}

/// One run of a build on a new store, which is removed afterwards.
async fn measure(build: &Path, store: &str, arguments: &[String]) -> anyhow::Result<Value> {
    let fresh = Fresh::beside(store)?;
    let mut command = Command::new(build);
    command.arg("bench").args(arguments).args(["-o", "json"]).env("WINDLASS_STORE", &fresh.store);
    let output = command.stderr(Stdio::inherit()).output().await;
    let output = output.with_context(|| format!("cannot run {}", build.display()));
    fresh.remove().await;
    let output = output?;
    anyhow::ensure!(output.status.success(), "{} failed: {}", build.display(), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().with_context(|| format!("{} printed nothing", build.display()))?;
    serde_json::from_str(last).with_context(|| format!("{} printed no measurement", build.display()))
}

/// A store beside the one that was named.
struct Fresh {
    store: String,
    named: String,
    schema: String,
}

impl Fresh {
    fn beside(named: &str) -> anyhow::Result<Self> {
        let schema = format!("bench_{:08x}", fastrand::u32(..));
        let store = match named.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => format!("{named}.{schema}"),
            Some("postgres" | "postgresql") if named.contains('?') => format!("{named}&schema={schema}"),
            Some("postgres" | "postgresql") => format!("{named}?schema={schema}"),
            Some("memory") => named.to_owned(),
            _ => anyhow::bail!(
                "--compare needs memory:, sqlite:PATH or postgres://…, so that each run has its own store"
            ),
        };
        Ok(Fresh { store, named: named.to_owned(), schema })
    }

    /// What cannot be removed stays, under a name that says whose it was.
    async fn remove(self) {
        if let Some(path) = self.store.strip_prefix("sqlite:") {
            for end in ["", "-wal", "-shm", "-next", "-now"] {
                let _ = std::fs::remove_file(format!("{path}{end}"));
            }
        }
        if self.store.starts_with("postgres") {
            let url = self.named.split('?').next().unwrap_or(&self.named);
            if let Ok((client, connection)) = tokio_postgres::connect(url, NoTls).await {
                tokio::spawn(connection);
                let _ = client.batch_execute(&format!("drop schema if exists {} cascade", self.schema)).await;
            }
        }
    }
}

/// A member of several measurements.
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    /// `None` where a measurement lacks it, or it is nothing but zeros.
    fn of(found: &[Value], member: &str) -> Option<Self> {
        let mut numbers: Vec<f64> = found.iter().map(|one| one[member].as_f64()).collect::<Option<_>>()?;
        numbers.sort_by(f64::total_cmp);
        let middle = numbers.len() / 2;
        let median =
            if numbers.len() % 2 == 1 { numbers[middle] } else { f64::midpoint(numbers[middle - 1], numbers[middle]) };
        let (least, most) = (*numbers.first()?, *numbers.last()?);
        (most > 0.0).then_some(Spread { least, median, most })
    }

    fn shown(&self) -> String {
        let digits = if self.median < 100.0 { 2 } else { 0 };
        format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts_with_their_range() {
        let found = |numbers: &[f64]| -> Vec<Value> {
            numbers.iter().map(|number| serde_json::json!({ "jobs_per_s": number })).collect()
        };
        assert_eq!(Spread::of(&found(&[3.0, 1.0, 2.0]), "jobs_per_s").expect("spread").shown(), "2.00 (1.00–3.00)");
        assert_eq!(Spread::of(&found(&[400.0, 100.0]), "jobs_per_s").expect("spread").shown(), "250 (100–400)");
        assert!(Spread::of(&found(&[0.0, 0.0]), "jobs_per_s").is_none(), "a cycle has no such times");
        assert!(Spread::of(&found(&[1.0]), "p50_ms").is_none());
    }

    #[test]
    fn every_run_has_a_store_of_its_own() {
        let fresh = Fresh::beside("postgres://h/db?connections=4").expect("a store");
        assert_eq!(fresh.store, format!("postgres://h/db?connections=4&schema={}", fresh.schema));
        assert!(Fresh::beside("http://h").is_err());
    }
}
