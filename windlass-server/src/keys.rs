//! The keys that payloads are encrypted with: from the environment or a file, never from an argument.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use windlass::store::{Keyring, Sealed, Store};

/// The variable that holds the keys; it wins over the file.
pub(crate) const VARIABLE: &str = "WINDLASS_ENCRYPTION_KEYS";

/// The keys in force: those of the environment, else those that the configuration names.
pub(crate) fn in_force(keys: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<Keyring>> {
    if let Some(text) = std::env::var(VARIABLE).ok().filter(|text| !text.trim().is_empty()) {
        return Ok(Some(Keyring::parse(&text).with_context(|| VARIABLE.to_owned())?));
    }
    match (keys, file) {
        (Some(_), Some(_)) => anyhow::bail!("encryption: keys and keys_file exclude each other"),
        (Some(keys), None) => Ok(Some(Keyring::parse(keys).context("encryption.keys")?)),
        (None, Some(path)) => {
            let read = std::fs::read_to_string(path);
            let text = read.with_context(|| format!("encryption.keys_file: cannot read {}", path.display()))?;
            Ok(Some(Keyring::parse(&text).context("encryption.keys_file")?))
        }
        (None, None) => Ok(None),
    }
}

/// The store, with its payloads encrypted where there are keys.
pub(crate) fn over(store: Arc<dyn Store>, keys: Option<Keyring>) -> Arc<dyn Store> {
    match keys {
        None => store,
        Some(keys) => Arc::new(Sealed::new(store, keys)),
    }
}
