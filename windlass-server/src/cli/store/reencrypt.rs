//! `windlass store reencrypt`: everything under the current key, so that older ones can go.

use serde::Serialize;
use windlass::store::{Cursor, Sealed, UnderKeys};

use super::super::connect::Session;
use super::super::exit::{End, Exit};
use super::super::output::say;
use super::super::table::clean;
use crate::figures::number;

/// Jobs or schedules in one step: few enough that large payloads and results fit into memory.
pub(crate) const STEP: usize = 50;
/// After how many things a line tells how far it is.
const TOLD_EVERY: u64 = 10_000;

/// What was found, for programs.
#[derive(Debug, Serialize)]
struct Told<'a> {
    current: &'a str,
    by_key: &'a std::collections::BTreeMap<String, u64>,
    plain: u64,
    rewritten: u64,
    unopened: u64,
    removable: Vec<&'a str>,
}

/// Walks over the whole store; a dry run only counts.
pub(super) async fn run(session: &Session, after: Option<String>, dry_run: bool) -> anyhow::Result<()> {
    let Some(sealed) = Sealed::of(session.store()) else {
        return Err(match session.place.store_url() {
            None => End::usage("a server does not encrypt again on request")
                .advise("name the store itself with --store, and the keys with --config or WINDLASS_ENCRYPTION_KEYS"),
            Some(_) => End::usage("no keys are set, so nothing can be encrypted")
                .advise("name them with --config or WINDLASS_ENCRYPTION_KEYS"),
        }
        .into());
    };
    // From a place in the middle it says nothing about what lies before it.
    let whole = after.is_none();
    let found = walk(sealed, after.map(Cursor), dry_run).await?;
    print(session, sealed, &found, whole)
}

async fn walk(sealed: &Sealed, after: Option<Cursor>, dry_run: bool) -> anyhow::Result<UnderKeys> {
    let mut found = UnderKeys::default();
    let mut told_at = TOLD_EVERY;
    let mut after = after;
    loop {
        found.add(match dry_run {
            true => sealed.under_keys(after.as_ref(), STEP).await?,
            false => sealed.reencrypt(after.as_ref(), STEP).await?,
        });
        let Some(next) = found.next.take() else { return Ok(found) };
        if found.looked_at() >= told_at {
            told_at = found.looked_at() + TOLD_EVERY;
            let (looked, rewritten) = (number(found.looked_at()), number(found.rewritten));
            say(format!("{looked} looked at, {rewritten} encrypted again; --after {:?} goes on from here", next.0));
        }
        after = Some(next);
    }
}

fn print(session: &Session, sealed: &Sealed, found: &UnderKeys, whole: bool) -> anyhow::Result<()> {
    let mut names = sealed.keys().names();
    let current = names.next().unwrap_or_default();
    let is_unused = |name: &&str| whole && found.by_key.get(*name).is_none_or(|count| *count == 0);
    let removable: Vec<&str> = names.filter(is_unused).collect();
    if session.out.is_table() {
        for (key, count) in &found.by_key {
            let mark = if key == current { ", the current key" } else { "" };
            session.out.line(format!("{:>12}  under {}{mark}", number(*count), clean(&format!("{key:?}"))))?;
        }
        session.out.line(format!("{:>12}  not encrypted", number(found.plain)))?;
    } else {
        let (by_key, plain, rewritten, unopened) = (&found.by_key, found.plain, found.rewritten, found.unopened);
        session.out.json(&Told { current, by_key, plain, rewritten, unopened, removable: removable.clone() })?;
    }
    say(format!("{} payloads, results, checkpoints and templates were encrypted again", number(found.rewritten)));
    if !removable.is_empty() {
        let names = removable.join(", ");
        say(format!("nothing is under {names} any more: once no process writes with it, it can leave the keyring"));
    }
    if found.unopened > 0 {
        let found = format!("{} do not open with these keys and stay as they are", number(found.unopened));
        return Err(End::new(Exit::Failed, found).advise("add the key that the list above names").into());
    }
    Ok(())
}
