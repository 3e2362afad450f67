//! Policies: what holds for jobs that do not say it themselves, for all, by queue and by type.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::job::{PolicyPatch, Timeouts, WINDOW_DEFAULT};
use windlass::{JobType, QueueName, Result, RetryPolicy};

use super::retry::{Retry, preset_or_policy};
use super::{Limit, Retention, RetentionPatch, Span};

/// Settings of jobs that do not say them themselves. What is left out is left to the next in line.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// When a failed attempt is tried again. A preset brings its own number of attempts; its name alone does, too.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "preset_or_policy")]
    pub retry: Option<Retry>,
    /// Counted executions, the first included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub max_attempts: Option<u32>,
    /// Longest run of one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_timeout: Option<Limit>,
    /// The lease time of a claim that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<Span>,
    /// From submission to a terminal state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Limit>,
    /// How long an idempotency key holds, from the first submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_window: Option<Limit>,
    /// How long jobs are kept after their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionPatch>,
}

/// What is in force, and where it comes from: the job itself comes first, then its type, its queue, the configured defaults,
/// and what is built in.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Policies {
    /// By type.
    pub types: BTreeMap<String, Policy>,
    /// By queue.
    pub queues: BTreeMap<String, Policy>,
    /// For all, from the configuration.
    pub defaults: Policy,
    /// What holds where nobody says anything.
    #[serde(default)]
    pub built_in: Policy,
}

impl Policy {
    /// The settings as the library takes them.
    pub fn patch(self) -> Result<PolicyPatch> {
        Ok(PolicyPatch {
            retry: self.retry.map(Retry::into_policy).transpose()?,
            max_attempts: self.max_attempts,
            execution: self.execution_timeout.map(|limit| limit.0),
            visibility: self.visibility_timeout.map(|span| span.0),
            lifetime: self.lifetime.map(|limit| limit.0),
            window: self.idempotency_window.map(|limit| limit.0),
            retention: self.retention.unwrap_or_default().into(),
        })
    }

    fn built_in() -> Self {
        let (retry, timeouts) = (RetryPolicy::standard(), Timeouts::default());
        Policy {
            max_attempts: Some(retry.max_attempts),
            retry: Some(Retry::from(&retry)),
            execution_timeout: Some(Limit(timeouts.execution)),
            visibility_timeout: Some(Span(timeouts.visibility)),
            lifetime: Some(Limit(timeouts.lifetime)),
            idempotency_window: Some(Limit(Some(WINDOW_DEFAULT))),
            retention: Some(Retention::from(windlass::store::Retention::default()).into()),
        }
    }
}

impl From<&PolicyPatch> for Policy {
    fn from(patch: &PolicyPatch) -> Self {
        Policy {
            retry: patch.retry.as_ref().map(Retry::from),
            // A whole policy brings its own number.
            max_attempts: patch.max_attempts.or(patch.retry.as_ref().map(|retry| retry.max_attempts)),
            execution_timeout: patch.execution.map(Limit),
            visibility_timeout: patch.visibility.map(Span),
            lifetime: patch.lifetime.map(Limit),
            idempotency_window: patch.window.map(Limit),
            retention: RetentionPatch::of(patch.retention),
        }
    }
}

impl Policies {
    /// The policies as the library takes them.
    pub fn check(self) -> Result<windlass::Policies> {
        let mut policies = windlass::Policies::default().system(self.defaults.patch()?);
        for (queue, policy) in self.queues {
            policies = policies.queue(QueueName::new(queue)?, policy.patch()?);
        }
        for (job_type, policy) in self.types {
            policies = policies.job_type(JobType::new(job_type)?, policy.patch()?);
        }
        Ok(policies)
    }
}

impl From<&windlass::Policies> for Policies {
    fn from(policies: &windlass::Policies) -> Self {
        Policies {
            types: policies.of_types().map(|(name, patch)| (name.to_string(), patch.into())).collect(),
            queues: policies.of_queues().map(|(name, patch)| (name.to_string(), patch.into())).collect(),
            defaults: policies.of_system().into(),
            built_in: Policy::built_in(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_in_force() {
        let text = r#"{"defaults":{"max_attempts":5,"lifetime":"none"},
            "queues":{"mail":{"retry":"patient","retention":{"completed":"7d","failed":"none"}}},"types":{"report":{"execution_timeout":"2h","idempotency_window":"none"}}}"#;
        let policies: Policies = serde_json::from_str(text).expect("policies");
        let checked = policies.check().expect("valid");
        let [report, mail] = ["report", "mail.send"].map(|name| JobType::new(name).expect("a name"));
        let [queue, other] = ["mail", "default"].map(|name| QueueName::new(name).expect("a name"));
        let own = PolicyPatch::default();
        let (retry, timeouts) = checked.resolve(&own, &mail, &queue);
        assert_eq!((retry.max_attempts, timeouts.lifetime), (20, None));
        let (retry, timeouts) = checked.resolve(&own, &report, &other);
        assert_eq!((retry.max_attempts, timeouts.execution), (5, Some(std::time::Duration::from_secs(7200))));
        assert_eq!(checked.window(&own, &report, &other), None);
        assert_eq!(checked.window(&own, &mail, &queue), Some(WINDOW_DEFAULT));
        let kept = checked.retention(&own, &mail, &queue);
        assert_eq!(RetentionPatch::of(kept).expect("something is said").to_string(), "completed 7d, failed none");
        let told = serde_json::to_string(&Policies::from(&checked)).expect("JSON");
        let again: Policies = serde_json::from_str(&told).expect("it reads its own");
        let again = again.check().expect("valid");
        assert_eq!(again.resolve(&own, &mail, &queue), checked.resolve(&own, &mail, &queue));
        assert_eq!(again.retention(&own, &mail, &queue), kept);
        assert_eq!(again.resolve(&own, &report, &other), checked.resolve(&own, &report, &other));
        for wrong in [r#"{"color":1}"#, r#"{"retry":"hasty"}"#, r#"{"retry":{"presets":"patient"}}"#] {
            assert!(serde_json::from_str::<Policy>(wrong).is_err(), "{wrong}");
        }
    }
}
