//! Who acts: what every route that an operator calls takes out of its request.
//!
//! The name that the guard found wins over the one that the request gives, and both end in the record of acts.

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use utoipa::IntoParams;
use windlass::client::Operate;
use windlass::flow::{ControlEdit, ControlRecord};
use windlass::store::{Act, Filter, ScheduleEdit, ScheduleEdited, WorkerEdit};
use windlass::{JobId, QueueName};

use super::ApiState;
use super::bounded::Shown;
use super::error::Refusal;
use super::extract::{Caller, Query};
use crate::wire::{Changed, Job, Worker};

/// The parameter of every act.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "only describes the parameter")]
pub(super) struct ByParams {
    /// Who acts.
    by: Option<String>,
}

/// Somebody who acts. A request with parameters beside `by` is refused.
#[derive(Debug)]
pub(super) struct Acting {
    state: ApiState,
    caller: Caller,
    by: Option<String>,
}

impl FromRequestParts<ApiState> for Acting {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Refusal> {
        let Ok(caller) = Caller::from_request_parts(parts, state).await;
        let mut query = Query::from_request_parts(parts, state).await?;
        let by = query.by(&caller)?;
        query.done()?;
        Ok(Acting { state: state.clone(), caller, by })
    }
}

impl Acting {
    /// What the handlers work with.
    pub(super) fn state(&self) -> &ApiState {
        &self.state
    }

    /// Who acts, where that is known.
    pub(super) fn by(&self) -> Option<String> {
        self.by.clone()
    }

    /// Who looks at the answer.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    fn act(&self, act: Act, why: impl Into<String>) -> Operate<'_> {
        let operate = self.state.client().act(act).because(why);
        match &self.by {
            Some(by) => operate.by(by),
            None => operate,
        }
    }

    /// Acts on one job.
    pub(super) async fn on(&self, id: JobId, act: Act, why: impl Into<String>) -> Result<(), Refusal> {
        Ok(self.act(act, why).on(id).await?)
    }

    /// Acts on one job; gives it as it is afterwards.
    pub(super) async fn change(&self, id: JobId, act: Act, why: impl Into<String>) -> Result<Json<Job>, Refusal> {
        self.on(id, act, why).await?;
        Ok(Json(Shown::to(&self.caller).job(&self.state.client().job(id).await?)))
    }

    /// Acts on every job that matches and can.
    pub(super) async fn on_all(
        &self,
        filter: Filter,
        act: Act,
        why: impl Into<String>,
    ) -> Result<Json<Changed>, Refusal> {
        Ok(Json(Changed { changed: self.act(act, why).on_all(filter).await? }))
    }

    /// Pauses or resumes a queue.
    pub(super) async fn set_paused(&self, queue: QueueName, paused: bool, why: &str) -> Result<(), Refusal> {
        self.control(&ControlEdit::pause(queue, paused).because(why)).await.map(drop)
    }

    /// Tells a worker to take no more jobs, or to take some again.
    pub(super) async fn edit_worker(&self, edit: &WorkerEdit) -> Result<Json<Worker>, Refusal> {
        Ok(Json(Worker::from(&self.state.store().edit_worker(edit, self.by.as_deref()).await?)))
    }

    /// Changes the flow control of a queue.
    pub(super) async fn control(&self, edit: &ControlEdit) -> Result<Option<ControlRecord>, Refusal> {
        Ok(self.state.store().control(edit, self.by.as_deref()).await?)
    }

    /// Changes a schedule.
    pub(super) async fn edit_schedule(&self, edit: &ScheduleEdit) -> Result<ScheduleEdited, Refusal> {
        Ok(self.state.store().edit_schedule(edit, self.by.as_deref()).await?)
    }
}
