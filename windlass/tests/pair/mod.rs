//! A primary and a synchronous standby of a test's own.

#![allow(dead_code, reason = "each of the tests uses some of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use windlass::store::PostgresStore;

/// The script that makes and ends servers.
pub(crate) fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres")
}

/// A pair in a folder that goes with it.
pub(crate) struct Pair {
    folder: tempfile::TempDir,
    pub(crate) url: String,
}

impl Pair {
    /// Starts one, with what else `scripts/postgres pair` is to give its members.
    pub(crate) fn start(more: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("windlass-pair-").tempdir_in("/tmp").expect("a folder");
        let mut pair = Pair { folder, url: String::new() };
        pair.url = pair.script("pair", "", more);
        pair
    }

    pub(crate) fn script(&self, what: &str, member: &str, more: &[&str]) -> String {
        let output = Command::new(script()).arg(what).arg(self.folder.path().join(member)).args(more).output();
        let output = output.expect("scripts/postgres runs");
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub(crate) fn signal(&self, member: &str, signal: &str) {
        self.script("signal", member, &[signal]);
    }

    /// The port of a member.
    pub(crate) fn port(&self, member: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(member).join("port")).expect("a port").trim().to_owned()
    }

    pub(crate) async fn open(&self) -> Arc<PostgresStore> {
        Arc::new(PostgresStore::open(&self.url).await.expect("the store opens"))
    }

    /// A connection to a member, past the store.
    pub(crate) async fn admin(&self, member: &str) -> tokio_postgres::Client {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", self.port(member));
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for member in ["a", "b"] {
            self.signal(member, "KILL");
        }
    }
}
