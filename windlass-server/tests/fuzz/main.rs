//! Nonsense and near-sense thrown at whatever reads what others wrote: HTTP bodies, queries and headers, command lines,
//! files and standard input. Nothing may panic, and a refusal must be one.
//!
//! A run draws a seed and prints it with every failure. `WINDLASS_FUZZ_SEED=N WINDLASS_FUZZ_CASES=1` repeats the one case;
//! `WINDLASS_FUZZ_CASES=N` alone runs more of them, each with the seed after the last.

mod commands;
mod draw;
mod http;
mod schema;
mod texts;

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, Once};

/// What panicked since the last look, in any thread: the runtime swallows the panics of tasks.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Runs a case for each seed; a failure names the seed.
pub(crate) fn cases(usual: u64, mut case: impl FnMut(u64)) {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICS.lock().expect("only this pushes").push(panic.to_string());
            usual(panic);
        }));
    });
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = number("WINDLASS_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
    let count = number("WINDLASS_FUZZ_CASES").unwrap_or(usual);
    println!("seeds {seed} and on, {count} cases");
    for seed in seed..seed + count {
        let done = panic::catch_unwind(AssertUnwindSafe(|| case(seed)));
        let panics = std::mem::take(&mut *PANICS.lock().expect("nobody panics with it"));
        if done.is_err() || !panics.is_empty() {
            let again = format!("WINDLASS_FUZZ_SEED={seed} WINDLASS_FUZZ_CASES=1");
            panic!("{again} repeats this:\n{}", panics.join("\n"));
        }
    }
}
