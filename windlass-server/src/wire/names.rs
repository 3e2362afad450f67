//! What the library's own small types look like in the OpenAPI document. Only descriptions: nothing is made of these.

use utoipa::ToSchema;

/// An identity.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, format = "uuid")]
pub struct Id(pub String);

/// Where a job stands.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = State, rename_all = "snake_case")]
pub enum StateName {
    /// Awaits its dependencies.
    Pending,
    /// Awaits `run_at`.
    Delayed,
    /// May be claimed now.
    Scheduled,
    /// Leased to a worker.
    Running,
    /// Awaits the end of its backoff.
    Retrying,
    /// Ended well.
    Completed,
    /// Ended by a permanent failure, or one whose category is not retried.
    Failed,
    /// Ended because attempts or lifetime ran out, or because somebody said so.
    DeadLetter,
    /// Ended because somebody asked.
    Cancelled,
}

/// How urgent a job is; the first is claimed first.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = Priority, rename_all = "snake_case")]
pub enum PriorityName {
    /// Goes before all others.
    Critical,
    /// Somebody waits for it.
    High,
    /// Ordinary work.
    Normal,
    /// May wait.
    Low,
    /// Must not get in the way of other work.
    Bulk,
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = Category, rename_all = "snake_case")]
pub enum CategoryName {
    /// Transient: worth trying again.
    Temporary,
    /// Will not get better by trying again.
    Permanent,
    /// Ran longer than allowed.
    Timeout,
    /// Was cancelled while running.
    Cancelled,
    /// The process or the system failed, not the work.
    System,
}

/// How an attempt ended. The first seven are said by the lease holder, the last two happen to it.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = Outcome, rename_all = "snake_case")]
pub enum OutcomeName {
    /// Success.
    Completed,
    /// A failure of any category.
    Failed,
    /// Dead-lettered by the handler.
    DeadLettered,
    /// Snoozed by the handler.
    Snoozed,
    /// Ended because it was cancelled.
    Cancelled,
    /// Given back before the handler started.
    Released,
    /// Interrupted by shutdown.
    Interrupted,
    /// The lease expired.
    Lost,
    /// The lease was taken away.
    Revoked,
}

/// Why a lease does not hold.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = Stale, rename_all = "snake_case")]
pub enum StaleName {
    /// The job is not running, or does not exist.
    NotRunning,
    /// The lease has expired.
    Expired,
    /// Somebody else holds the job.
    Mismatch,
}

/// Why a job is terminal.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = ReasonKind, rename_all = "snake_case")]
pub enum ReasonKindName {
    /// A permanent failure, or a category that is not retried.
    Permanent,
    /// The attempts ran out.
    Exhausted,
    /// The lifetime ran out.
    Lifetime,
    /// A job it depends on ended badly.
    Dependency,
    /// Its handler or an operator dead-lettered it.
    Explicit,
    /// It was cancelled.
    Cancelled,
}

/// What counts as done of a job that is waited for, and what its bad end does.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = DependencyKind, rename_all = "snake_case")]
pub enum DependencyKindName {
    /// It must complete; if it dies, so does the dependent.
    After,
    /// The first of all so marked to end, however it ended.
    AfterAny,
    /// It must end, however.
    AfterAll,
    /// It and all it spawns must complete.
    FanInSuccess,
    /// It and all it spawns must end, however.
    FanInDone,
}

/// Among which jobs an idempotency key is unique.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = Scope, rename_all = "snake_case")]
pub enum ScopeName {
    /// Jobs of the same type.
    Type,
    /// Jobs of the same queue.
    Queue,
    /// All jobs.
    Global,
}

/// How a workflow as a whole stands.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = WorkflowState, rename_all = "snake_case")]
pub enum WorkflowStateName {
    /// Some job of it has not ended.
    Running,
    /// Every job of it completed.
    Completed,
    /// Every job ended, and one failed or was dead-lettered.
    Failed,
    /// Every job ended, none failed, and one was cancelled.
    Cancelled,
}

/// What a lost attempt costs.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = Lost, rename_all = "snake_case")]
pub enum LostName {
    /// It counts as a failure.
    Counted,
    /// The first ten do not count.
    Free,
}

/// What becomes of a slot while the last firing's job is not terminal.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(as = Overlap, rename_all = "snake_case")]
pub enum OverlapName {
    /// It does not fire.
    Skip,
    /// It fires, and its job waits for the last one to end.
    QueueOne,
    /// It fires.
    Allow,
}
