//! I9: nothing runs before what it depends on, or in spite of it.

use std::collections::HashMap;

use windlass::job::DependencyKind;
use windlass::{JobId, State};

use super::view::View;
use super::{Found, Invariant};
use crate::dump::JobEnd;

/// I9: every dependent began after what it waited for, and only if that went well.
pub(super) fn orders(view: &View<'_>, found: &mut Found) {
    let mut spawned: HashMap<JobId, Vec<&JobEnd>> = HashMap::new();
    for end in &view.dump.jobs {
        if let Some(parent) = end.spawned_by {
            spawned.entry(parent).or_default().push(end);
        }
    }
    for end in view.dump.jobs.iter().filter(|end| !end.depends_on.is_empty()) {
        // A requeued job counts what has ended as met, so only its first generation says something.
        let began = end.attempts.iter().filter(|attempt| attempt.generation == 0).map(|attempt| attempt.started).min();
        let waits = waits(view, end, &spawned);
        if let Some(began) = began {
            for what in waits.iter().filter_map(|(on, kind)| broken(on, *kind, began)) {
                found.note(Invariant::Chord, end.id, what);
            }
            any(view, end, began, found);
        }
        let strict = |kind| matches!(kind, DependencyKind::After | DependencyKind::FanInSuccess);
        let harmed =
            waits.iter().any(|(on, kind)| strict(*kind) && (on.state != State::Completed || on.generation > 0));
        if end.died_of_dependency && end.generation == 0 && !harmed {
            found.note(Invariant::Chord, end.id, "died of a dependency, but all of them completed");
        }
    }
}

/// What a job waits for: its dependencies, and for a FAN_IN what they spawned and those in turn.
fn waits<'a>(
    view: &View<'a>,
    end: &JobEnd,
    spawned: &HashMap<JobId, Vec<&'a JobEnd>>,
) -> Vec<(&'a JobEnd, DependencyKind)> {
    let mut waits: Vec<(&JobEnd, DependencyKind)> = Vec::new();
    for (on, kind) in &end.depends_on {
        let Some(on) = view.ends.get(on) else { continue };
        waits.push((on, *kind));
        if !matches!(kind, DependencyKind::FanInSuccess | DependencyKind::FanInDone) {
            continue;
        }
        let mut next = waits.len() - 1;
        while next < waits.len() {
            let children = spawned.get(&waits[next].0.id);
            waits.extend(children.into_iter().flatten().map(|child| (*child, *kind)));
            next += 1;
        }
    }
    waits
}

/// What is wrong with a job that began at `began` although it waited for `on`.
fn broken(on: &JobEnd, kind: DependencyKind, began: i64) -> Option<String> {
    let must_complete = match kind {
        DependencyKind::After | DependencyKind::FanInSuccess => true,
        DependencyKind::AfterAll | DependencyKind::FanInDone => false,
        DependencyKind::AfterAny => return None,
    };
    if must_complete && on.state != State::Completed {
        return Some(format!("ran, but depends on {}, which is {}", on.id, on.state));
    }
    // One that ended, was requeued and ended again was met by its first end, unless it had to complete.
    let exact = must_complete || on.generation == 0;
    if exact && on.completed.is_none_or(|completed| completed > began) {
        return Some(format!("began before {}, on which it depends, had ended", on.id));
    }
    None
}

/// AFTER_ANY: at least one has ended.
fn any(view: &View<'_>, end: &JobEnd, began: i64, found: &mut Found) {
    let mut named = end.depends_on.iter().filter(|(_, kind)| *kind == DependencyKind::AfterAny).peekable();
    if named.peek().is_none() {
        return;
    }
    let met = named
        .filter_map(|(on, _)| view.ends.get(on))
        .any(|on| on.generation > 0 || on.completed.is_some_and(|completed| completed <= began));
    if !met {
        found.note(Invariant::Chord, end.id, "began before any of the jobs it depends on had ended");
    }
}
