//! `windlass jobs history`: what happened to a job, oldest first.

use serde::Serialize;
use windlass::{JobId, Timestamp};

use crate::cli::connect::Session;
use crate::cli::output::{Row, say};
use crate::cli::table::{Cell, clean, cut, relative};
use crate::history;
use crate::wire::Happened;

/// How much of a reason or a message a table shows.
const WORDS_CHARS: usize = 60;

pub(super) async fn run(session: &Session, id: JobId) -> anyhow::Result<()> {
    let history = history::read(&**session.store(), id).await?;
    if !session.out.is_table() {
        return session.out.json(&history);
    }
    session.out.all(&history.items, "nothing is known of it")?;
    if !history.complete {
        say("older attempts or acts may be missing: the newest 100 and 10,000 are kept");
    }
    Ok(())
}

impl Row for Happened {
    fn headings(_: bool) -> Vec<&'static str> {
        vec!["AT", "WHAT", "STATE", "ATTEMPT", "WHO", "WHY"]
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        let failure = self.failure.as_ref().map(|failure| {
            let code = failure.code.as_deref().unwrap_or(failure.category.as_str());
            format!("{}: {}", clean(code), clean(&failure.message))
        });
        let why = self.reason.clone().or(failure).unwrap_or_else(|| "-".to_owned());
        let who = self.by.as_deref().or(self.worker.as_deref()).unwrap_or("-");
        vec![
            Cell::new(if wide { self.at.to_string() } else { relative(self.at, now) }),
            Cell::new(&self.what),
            self.state.map_or_else(|| Cell::new("-"), Cell::state),
            Cell::new(self.attempt.map_or_else(|| "-".to_owned(), |number| number.to_string())),
            Cell::new(who),
            Cell::new(if wide { why } else { cut(&why, WORDS_CHARS) }),
        ]
    }

    fn id(&self) -> String {
        self.at.to_string()
    }

    fn wire(&self) -> impl Serialize {
        self.clone()
    }
}
