//! The `windlass` binary.

fn main() {
    println!("windlass {}", env!("CARGO_PKG_VERSION"));
}
