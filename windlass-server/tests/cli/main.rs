//! Every command through the real binary, on a SQLite file with one of everything in it.
//!
//! What commands print is compared with `snapshots/`; ids, times and spans are scrubbed. To write the snapshots anew:
//! `INSTA_UPDATE=always cargo test -p windlass-server --test cli`, and read the difference before committing it.

mod acts;
mod endings;
mod help;
mod looking;
mod moving;
mod newcomer;
mod others;
mod putting;
mod remote;
mod support;
