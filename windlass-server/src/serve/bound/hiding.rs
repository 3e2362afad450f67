//! What may hold pieces of payloads, left out for a token that may not see them.

use windlass::job::{FailureRecord, JobOptions, Reason};
use windlass::store::ActRecord;

use crate::wire::HIDDEN;

/// A failure's words may repeat what the job was given; its category and code do not.
pub(super) fn hide(failure: &mut FailureRecord) {
    HIDDEN.clone_into(&mut failure.message);
    failure.causes.clear();
}

/// Handlers say why they cancel a job, too, and in their own words.
pub(super) fn hide_reason(reason: &mut Reason) {
    if reason.message.is_some() {
        reason.message = Some(HIDDEN.to_owned());
    }
}

/// An act's words: why, and the filter where it names what is hidden.
pub(super) fn hide_act(act: &mut ActRecord) {
    if act.why.is_some() {
        act.why = Some(HIDDEN.to_owned());
    }
    if act.target.contains("key=") || act.target.contains("text=") {
        HIDDEN.clone_into(&mut act.target);
    }
}

/// A URL without what follows its host: that is where its secrets are.
fn without_path(url: &str) -> String {
    let end = url.find("://").and_then(|scheme| url[scheme + 3..].find(['/', '?', '#']).map(|end| scheme + 3 + end));
    end.map_or_else(|| url.to_owned(), |end| format!("{}/", &url[..end]))
}

/// The options that may hold secrets or pieces of a payload.
pub(super) fn hide_options(options: &mut JobOptions) {
    options.callback_url = options.callback_url.as_deref().map(without_path);
    options.idempotency = None;
}
