//! Ended jobs in the order in which they ended. A store lists one state in that order; several are put together here.

use std::collections::VecDeque;

use windlass::job::JobRecord;
use windlass::store::{Cursor, Filter, ListQuery, Order, Page};
use windlass::{Client, Result, State};

/// What a cursor says of a state of which all jobs were listed.
const OVER: &str = "-";

/// A page of the jobs that match, the last that ended first. The filter names its states, all of them terminal.
pub(super) async fn page(
    client: &Client,
    filter: &Filter,
    limit: usize,
    after: Option<Cursor>,
) -> Result<Page<JobRecord>> {
    // Each once, however often it was named.
    let states: Vec<State> = State::ALL.into_iter().filter(|state| filter.states.contains(state)).collect();
    let mut parts = Part::all(&states, after)?;
    for part in &mut parts {
        part.read(client, filter, limit).await?;
    }
    let jobs = merge(&mut parts, limit);
    let mut places = Vec::with_capacity(parts.len());
    for part in parts {
        places.push(part.place(client, filter).await?);
    }
    let over = places.iter().all(|place| place == OVER);
    Ok(Page::new(jobs, (!over).then(|| Cursor(places.join(",")))))
}

/// The jobs of one state.
struct Part {
    state: State,
    /// Where the last page ended.
    after: String,
    jobs: VecDeque<JobRecord>,
    next: Option<Cursor>,
    taken: usize,
}

impl Part {
    fn all(states: &[State], after: Option<Cursor>) -> Result<Vec<Part>> {
        let places: Vec<String> = match &after {
            None => vec![String::new(); states.len()],
            Some(Cursor(text)) => text.split(',').map(str::to_owned).collect(),
        };
        if let Some(after) = after.filter(|_| places.len() != states.len()) {
            return Err(after.invalid());
        }
        let part = |(state, after): (&State, String)| Part {
            state: *state,
            after,
            jobs: VecDeque::new(),
            next: None,
            taken: 0,
        };
        Ok(states.iter().zip(places).map(part).collect())
    }

    async fn read(&mut self, client: &Client, filter: &Filter, limit: usize) -> Result<()> {
        if self.after != OVER {
            let page = self.list(client, filter, limit).await?;
            (self.jobs, self.next) = (page.items.into(), page.next);
        }
        Ok(())
    }

    async fn list(&self, client: &Client, filter: &Filter, limit: usize) -> Result<Page<JobRecord>> {
        let filter = filter.clone().states([self.state]);
        let after = Some(Cursor(self.after.clone())).filter(|after| !after.0.is_empty());
        client.store().list(&ListQuery { after, order: Order::Ended, ..ListQuery::new(filter, limit) }).await
    }

    /// Where the next page goes on. A store says so of the end of a page only, so what was taken of one is asked for again.
    async fn place(self, client: &Client, filter: &Filter) -> Result<String> {
        let next = match (self.jobs.is_empty(), self.taken) {
            (true, _) => self.next,
            (false, 0) => return Ok(self.after),
            (false, taken) => self.list(client, filter, taken).await?.next,
        };
        Ok(next.map_or_else(|| OVER.to_owned(), |Cursor(text)| text))
    }
}

/// Takes jobs from all parts, the last that ended first. A part with more than was read ends the page: its next job may come
/// before those of the others.
fn merge(parts: &mut [Part], limit: usize) -> Vec<JobRecord> {
    let mut jobs = Vec::new();
    while jobs.len() < limit && !parts.iter().any(|part| part.jobs.is_empty() && part.next.is_some()) {
        let Some(part) = parts
            .iter_mut()
            .filter(|part| !part.jobs.is_empty())
            .max_by_key(|part| part.jobs.front().and_then(|job| job.completed_at))
        else {
            break;
        };
        part.taken += 1;
        jobs.extend(part.jobs.pop_front());
    }
    jobs
}
