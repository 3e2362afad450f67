//! Every target in one program, so that it is compiled and linked once: `WINDLASS_FUZZ_TARGET` says which one is run.

#![no_main]

use std::sync::LazyLock;

use windlass_fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("WINDLASS_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, target)| target).unwrap_or_else(|| {
        eprintln!("WINDLASS_FUZZ_TARGET names no target: {name:?}");
        std::process::exit(2);
    })
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
