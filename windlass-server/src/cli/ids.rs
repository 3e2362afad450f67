//! Ids as people type them: whole, or their first characters, as far as these name one job alone.

use std::str::FromStr;

use windlass::store::{Cursor, Filter};
use windlass::{Error, JobId, WorkflowId};

use super::connect::Session;
use super::exit::{End, Exit};
use crate::figures::number;

/// Fewer characters than this are too easily those of another job.
const START_CHARS_MIN: usize = 8;
/// How many of the newest jobs are looked through for one that begins so: stores find jobs by whole ids only.
const LOOKED_THROUGH: usize = 10_000;
const PAGE: usize = 500;

/// An id that was typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Typed<Id> {
    /// All of it.
    Whole(Id),
    /// Its first characters, in lower case.
    Start(String),
}

impl<Id: FromStr> FromStr for Typed<Id> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(id) = text.parse() {
            return Ok(Typed::Whole(id));
        }
        let start = text.trim_end_matches('…').to_ascii_lowercase();
        let is_start = start.chars().all(|c| c.is_ascii_hexdigit() || c == '-') && start.len() < 36;
        match is_start && start.len() >= START_CHARS_MIN {
            true => Ok(Typed::Start(start)),
            false => Err(format!("write a whole id, or at least its first {START_CHARS_MIN} characters")),
        }
    }
}

/// The job that was meant.
pub(crate) async fn job(session: &Session, typed: &Typed<JobId>) -> anyhow::Result<JobId> {
    match typed {
        Typed::Whole(id) => Ok(*id),
        Typed::Start(start) => {
            let page = async |after: Option<Cursor>| {
                let found = session.client.list(Filter::default(), PAGE, after).await?;
                Ok((found.items.iter().map(|job| job.id).collect(), found.next))
            };
            only(start, "job", page).await
        }
    }
}

/// The jobs that were meant, in order.
pub(crate) async fn jobs(session: &Session, typed: &[Typed<JobId>]) -> anyhow::Result<Vec<JobId>> {
    let mut ids = Vec::with_capacity(typed.len());
    for typed in typed {
        ids.push(job(session, typed).await?);
    }
    Ok(ids)
}

/// The workflow that was meant.
pub(crate) async fn workflow(session: &Session, typed: &Typed<WorkflowId>) -> anyhow::Result<WorkflowId> {
    match typed {
        Typed::Whole(id) => Ok(*id),
        Typed::Start(start) => {
            let page = async |after: Option<Cursor>| {
                let found = session.client.workflows(PAGE, after.as_ref()).await?;
                Ok((found.items.iter().map(|workflow| workflow.id).collect(), found.next))
            };
            only(start, "workflow", page).await
        }
    }
}

/// The only id that begins so, page by page from the newest.
async fn only<Id: ToString + Copy>(
    start: &str,
    what: &'static str,
    page: impl AsyncFn(Option<Cursor>) -> windlass::Result<(Vec<Id>, Option<Cursor>)>,
) -> anyhow::Result<Id> {
    let (mut found, mut looked, mut after) = (Vec::new(), 0, None);
    loop {
        let (ids, next) = page(after).await?;
        looked += ids.len();
        found.extend(ids.into_iter().filter(|id| id.to_string().starts_with(start)));
        after = next;
        if let [first, second, ..] = found.as_slice() {
            let message = format!("{start} is the beginning of {} and of {}", first.to_string(), second.to_string());
            return Err(End::new(Exit::Conflict, message).advise("write more of it").into());
        }
        if after.is_none() || looked >= LOOKED_THROUGH {
            break;
        }
    }
    match (found.first(), after) {
        (Some(id), _) => Ok(*id),
        (None, None) => Err(Error::not_found(what, format!("{start}…")).into()),
        (None, Some(_)) => {
            let message = format!("none of the newest {} {what}s begins with {start}", number(looked as u64));
            Err(End::new(Exit::NotFound, message).advise("older ones are found by their whole id").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_has_at_least_eight_characters() {
        let parse = |text: &str| text.parse::<Typed<JobId>>();
        assert!(matches!(parse("00000000-0000-4000-8000-000000000000"), Ok(Typed::Whole(_))));
        assert_eq!(parse("3F0C12ab"), Ok(Typed::Start("3f0c12ab".to_owned())));
        assert_eq!(parse("3f0c12ab-9"), Ok(Typed::Start("3f0c12ab-9".to_owned())));
        for bad in ["", "3f0c12a", "3f0c…", "3f0c12xy", "mail", &"a".repeat(36)] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn only_one_may_begin_so() {
        let ids = [["aaaaaaaa1", "bbbbbbbb1"], ["aaaaaaaa2", "cccccccc1"]];
        let cursor = || Some(Cursor("1".to_owned()));
        let page = async |after: Option<Cursor>| match after {
            None => Ok((ids[0].to_vec(), cursor())),
            Some(_) => Ok((ids[1].to_vec(), None)),
        };
        assert_eq!(only("cccccccc", "job", page).await.expect("one"), "cccccccc1");
        let two = only("aaaaaaaa", "job", page).await.expect_err("two");
        assert!(two.to_string().contains("beginning of aaaaaaaa1 and of aaaaaaaa2"), "{two}");
        let none = only("dddddddd", "job", page).await.expect_err("none");
        assert_eq!(super::super::exit::code(&none), Some(Exit::NotFound));
    }
}
