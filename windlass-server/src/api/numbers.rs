//! The numbers of lanes: as they are, and what is remembered of them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{LaneRecord, Observation, PAGE_MAX, Sample as StoredSample};
use windlass::{Error, Timestamp};

use super::ApiState;
use super::error::Refusal;
use super::extract::{Body, Query};
use super::recent::{self, MAX_AGE};
use super::roles::{Role, needs};
use crate::wire::{Lanes, NewSample, Sample, Samples, sample_step};

/// Most lanes of an answer: producers choose the names, and each is half a kilobyte.
const LANES_MAX: usize = 10_000;

/// Keeps the lanes with the most jobs ever, in their order; how many it leaves out.
fn largest(lanes: &mut Vec<LaneRecord>) -> u64 {
    let left_out = lanes.len().saturating_sub(LANES_MAX);
    if left_out > 0 {
        let mut sizes: Vec<u64> = lanes.iter().map(|lane| lane.accepted).collect();
        let (_, least, above) = sizes.select_nth_unstable(left_out);
        let least = *least;
        let mut room = LANES_MAX - above.iter().filter(|size| **size > least).count();
        lanes.retain(|lane| {
            let fits = lane.accepted == least && room > 0;
            room -= usize::from(fits);
            lane.accepted > least || fits
        });
    }
    left_out as u64
}

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Read, routes!(lanes)))
        .routes(needs(Role::Read, routes!(samples)))
        .routes(needs(Role::Admin, routes!(put_sample)))
}

/// The numbers of every queue and type
///
/// How many jobs stand in each state, and what only grows: jobs accepted and ended, attempts retried and lost. Cheap at any
/// size. Of more than 10,000 lanes those with the most jobs ever are told, and `left_out` counts the others.
#[utoipa::path(
    get,
    path = "/v1/lanes",
    tag = "store",
    params(
        ("ends_after" = Option<String>, Query, description = "Also the newest ends at or after this moment.",
            format = DateTime),
        ("max_age" = Option<String>, Query, description = MAX_AGE),
    ),
    responses((status = 200, description = "By queue and type.", body = Lanes))
)]
async fn lanes(State(state): State<ApiState>, mut query: Query) -> Result<Json<Lanes>, Refusal> {
    let ends_from = query.time("ends_after")?;
    let age = recent::max_age(&mut query)?;
    query.done()?;
    let look = async {
        let _turn = state.bounds.turn().await?;
        Ok::<_, Refusal>(state.store().observe(ends_from).await?)
    };
    let mut seen = match ends_from {
        Some(_) => look.await?,
        None => Observation::clone(&*state.recent.lanes.get(age, look).await?),
    };
    let left_out = largest(&mut seen.lanes);
    Ok(Json(Lanes { left_out, ..Lanes::from(&seen) }))
}

/// What is remembered of the numbers
///
/// Samples of every queue and type: every 10 s for an hour, every 60 s for a day, every 900 s for 14 days. `/v1/series` makes
/// lines of them.
#[utoipa::path(
    get,
    path = "/v1/samples",
    tag = "store",
    params(
        ("step" = u64, Query, description = "10, 60 or 900."),
        ("from" = Option<String>, Query, description = "From this moment on.", format = DateTime),
        ("before" = Option<String>, Query, description = "Before this moment.", format = DateTime),
    ),
    responses((status = 200, description = "At most the newest 1,500, oldest first.", body = Samples))
)]
async fn samples(State(state): State<ApiState>, mut query: Query) -> Result<Json<Samples>, Refusal> {
    let step = sample_step(query.number("step", 1..=900, 10)?)?;
    let from = query.time("from")?.unwrap_or(Timestamp::EPOCH);
    let before = query.time("before")?.unwrap_or(Timestamp::MAX);
    query.done()?;
    let _turn = state.bounds.turn().await?;
    let samples = state.store().samples(step, from, before).await?;
    Ok(Json(Samples { items: samples.iter().map(Sample::from).collect() }))
}

/// Keep a sample of the numbers
///
/// The server does this by itself. Of two samples of one moment the first is kept.
#[utoipa::path(
    post,
    path = "/v1/samples",
    tag = "store",
    request_body = NewSample,
    responses((status = 204, description = "There is a sample of that moment."))
)]
async fn put_sample(State(state): State<ApiState>, Body(new): Body<NewSample>) -> Result<StatusCode, Refusal> {
    let step = sample_step(new.step)?;
    let sample = StoredSample::try_from(new.sample)?;
    if step.floor(sample.at) != sample.at {
        return Err(Error::invalid("at", "must be a multiple of the step").into());
    }
    if sample.lanes.len() > PAGE_MAX {
        return Err(Error::invalid("lanes", format!("must be at most {PAGE_MAX}, are {}", sample.lanes.len())).into());
    }
    state.store().put_sample(step, &sample).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use windlass::{JobType, QueueName};

    use super::*;

    #[test]
    fn m10_of_too_many_lanes_the_largest_are_told_and_the_others_counted() {
        let lane = |number: usize| {
            let job_type = JobType::new(format!("t{number}")).expect("a name");
            // The last thousand have had many jobs, the others one each.
            let accepted = if number >= LANES_MAX { 7 } else { 1 };
            LaneRecord { accepted, ..LaneRecord::new(QueueName::default(), job_type) }
        };
        let mut lanes: Vec<_> = (0..LANES_MAX + 1000).map(lane).collect();
        assert_eq!(largest(&mut lanes), 1000);
        assert_eq!(lanes.len(), LANES_MAX);
        assert_eq!(lanes.iter().filter(|lane| lane.accepted == 7).count(), 1000);
        assert_eq!(largest(&mut lanes), 0);
    }
}
