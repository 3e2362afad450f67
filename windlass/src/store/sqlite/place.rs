//! Where the file is: with which rights it is made, and whether it is still there.

use std::fs::{Metadata, OpenOptions, Permissions};
use std::io;
use std::path::{Path, PathBuf};

/// Most links that are followed; the system itself follows as many.
const LINKS_MAX: usize = 40;

/// Makes an empty file that only its owner may read, and nothing if there is one.
///
/// SQLite gives its log the same rights, and would itself make the file as the umask says: for all users to read.
pub(super) fn make(path: &Path) -> io::Result<()> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match private().open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(drop),
        }
        // A link to nothing is made good where it leads, or SQLite would do it.
        match path.read_link() {
            Ok(to) if !path.exists() => path = path.parent().unwrap_or(Path::new("")).join(to),
            _ => return Ok(()),
        }
    }
    Err(io::Error::other("too many links lead to one another"))
}

/// Makes an empty file beside another one, with its rights: who may not read that has no business with this. One that is there
/// is given them, if it may be.
pub(super) fn make_beside(of: &Path, path: &Path) -> io::Result<()> {
    match make_copy(of, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let rights = rights(of)?;
            if path.symlink_metadata()?.permissions() != rights {
                // Another user's is left as it is; to lock it needs no more than to open it.
                let _ = std::fs::set_permissions(path, rights);
            }
            Ok(())
        }
        made => made,
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

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn m4_what_a_link_leads_to_is_made_for_its_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second, file] = ["first", "second", "file"].map(|name| folder.path().join(name));
        symlink("second", &first).expect("a link");
        symlink(&file, &second).expect("a link");
        make(&first).expect("made");
        assert_eq!(mode(&file), 0o600);
        make(&first).expect("there is one");
        let round = folder.path().join("round");
        symlink("round", &round).expect("a link");
        assert!(make(&round).is_err());
    }

    #[test]
    fn m4_files_beside_a_store_have_its_rights() {
        let folder = tempfile::tempdir().expect("a folder");
        let [store, beside] = ["store", "beside"].map(|name| folder.path().join(name));
        make(&store).expect("made");
        make_beside(&store, &beside).expect("made");
        assert_eq!(mode(&beside), 0o600);
        std::fs::set_permissions(&beside, Permissions::from_mode(0o644)).expect("changed");
        make_beside(&store, &beside).expect("made before");
        assert_eq!(mode(&beside), 0o600);
    }
}
