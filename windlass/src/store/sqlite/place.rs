//! Where the file is: with which rights it is made, and whether it is still there.

use std::fs::{Metadata, OpenOptions, Permissions};
use std::io;
use std::path::{Path, PathBuf};

/// Makes an empty file that only its owner may read, and nothing if there is one.
///
/// SQLite gives its log the same rights, and would itself make the file as the umask says: for all users to read.
pub(super) fn make(path: &Path) -> io::Result<()> {
    match private().open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes an empty file for a copy, with the rights of what is copied. Nothing may be there, not even a dangling link.
pub(super) fn make_copy(of: &Path, path: &Path) -> io::Result<()> {
    let file = private().open(path)?;
    file.set_permissions(rights(of)?)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}

fn rights(of: &Path) -> io::Result<Permissions> {
    Ok(of.metadata()?.permissions())
}

/// A file that was opened, and how to know it again.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    is: Option<Identity>,
}

type Identity = (u64, u64);

impl Place {
    /// The file that is there now.
    pub(super) fn of(path: &Path) -> Self {
        // Absolute, as SQLite has it: the program may go to another folder later.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let is = path.metadata().ok().as_ref().and_then(identity);
        Place { path, is }
    }

    /// Whether the path still leads to the same file. A file that was moved or deleted is still written to, by the
    /// handle that is open, and found by no process after that.
    pub(super) fn is_there(&self) -> bool {
        match self.is {
            None => true,
            is => self.path.metadata().ok().as_ref().and_then(identity) == is,
        }
    }
}

#[cfg(unix)]
fn identity(about: &Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    Some((about.dev(), about.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<Identity> {
    None
}
