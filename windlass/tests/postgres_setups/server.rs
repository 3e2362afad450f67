//! A private server in a folder that goes with it.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Server {
    folder: tempfile::TempDir,
    pub(crate) url: String,
}

impl Server {
    /// Starts one; `settings` are lines for its configuration file.
    pub(crate) fn start(settings: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("windlass-setups-").tempdir_in("/tmp").expect("a folder");
        let mut server = Server { folder, url: String::new() };
        server.url = server.script("start");
        if !settings.is_empty() {
            server.append("postgresql.conf", settings);
            server.restart();
        }
        server
    }

    /// Stops it and starts it again, on the same port.
    pub(crate) fn restart(&self) {
        self.script("stop");
        assert_eq!(self.script("start"), self.url, "it comes back where it was");
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn port(&self) -> &str {
        self.url.rsplit(':').next().and_then(|rest| rest.split('/').next()).expect("a port")
    }

    /// Adds lines to one of its files.
    pub(crate) fn append(&self, file: &str, lines: &str) {
        let path = self.data().join(file);
        let before = std::fs::read_to_string(&path).expect("the file is there");
        std::fs::write(&path, format!("{before}\n{lines}\n")).expect("the file can be written");
    }

    /// Adds lines that count before all others.
    pub(crate) fn prepend(&self, file: &str, lines: &str) {
        let path = self.data().join(file);
        let before = std::fs::read_to_string(&path).expect("the file is there");
        std::fs::write(&path, format!("{lines}\n{before}")).expect("the file can be written");
    }

    /// Gives a file to the server, which alone may read it.
    pub(crate) fn give(&self, file: &Path, name: &str) {
        let to = self.data().join(name);
        std::fs::copy(file, &to).expect("the file can be copied");
        run(Command::new("chmod").arg("600").arg(&to));
        let reference = format!("--reference={}", self.data().display());
        run(Command::new("chown").arg(reference).arg(&to));
    }

    fn script(&self, what: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres");
        run(Command::new(script).arg(what).arg(self.folder.path()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.script("stop");
    }
}

/// Runs a command that must succeed; gives what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
