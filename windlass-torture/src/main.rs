//! The `windlass-torture` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_torture::cli::main()
}
