//! What a move reads from a schema.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::fault::Fault;
use super::job_rows::{self, JobColumns};
use super::link::Link;
use super::moving::Mover;
use super::working::kind_of;
use crate::job::{JobId, WorkflowId};
use crate::store::moving::{MovedEdge, MovedJob, MovedKey, MovedLine, MovedWorkflow, Name, Part};
use crate::time::Timestamp;

/// What stands in for the number of an end, of which only the order counts: milliseconds.
const ORDER: i64 = 1000;

impl Mover {
    pub(super) async fn list_names(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>, Fault> {
        let mut using = self.connection().await?;
        let link = using.link()?;
        let wanted = |names: &[Name]| i64::try_from(limit - names.len()).unwrap_or(i64::MAX);
        let mut names = Vec::with_capacity(limit);
        if matches!(after, None | Some(Name::Job(_))) {
            let from = if let Some(Name::Job(seq)) = after { *seq } else { 0 };
            let rows = link.query(include_str!("moving/list_job_names.sql"), &[&from, &wanted(&names)]).await?;
            names.extend(rows.iter().map(|row| Name::Job(row.get("seq"))));
        }
        if names.len() < limit && !matches!(after, Some(Name::Key(..))) {
            let from = if let Some(Name::Workflow(seq)) = after { *seq } else { 0 };
            let rows = link.query(include_str!("moving/list_workflow_names.sql"), &[&from, &wanted(&names)]).await?;
            names.extend(rows.iter().map(|row| Name::Workflow(row.get("seq"))));
        }
        if names.len() < limit {
            let (scope, key) =
                if let Some(Name::Key(scope, key)) = after { (scope.as_str(), key.as_str()) } else { ("", "") };
            let parameters: [super::link::Parameter<'_>; 3] = [&scope, &key, &wanted(&names)];
            let rows = link.query(include_str!("moving/list_key_names.sql"), &parameters).await?;
            names.extend(rows.iter().map(|row| Name::Key(row.get("scope"), row.get("key"))));
        }
        Ok(names)
    }

    pub(super) async fn list_changes(&self, limit: usize) -> Result<Vec<(i64, Name)>, Fault> {
        let mut using = self.connection().await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = using.link()?.query(include_str!("moving/list_changes.sql"), &[&limit]).await?;
        let name = |row: &super::driver_row::Row| match row.get::<_, i16>("kind") {
            0 => Name::Job(row.get("seq")),
            1 => Name::Workflow(row.get("seq")),
            _ => Name::Key(row.get("scope"), row.get("key")),
        };
        Ok(rows.iter().map(|row| (row.get("number"), name(row))).collect())
    }

    pub(super) async fn read_part(&self, names: &[Name]) -> Result<Part, Fault> {
        let (mut jobs, mut workflows, mut scopes, mut keys) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for name in names {
            match name {
                Name::Job(seq) => jobs.push(*seq),
                Name::Workflow(seq) => workflows.push(*seq),
                Name::Key(scope, key) => {
                    scopes.push(scope.as_str());
                    keys.push(key.as_str());
                }
            }
        }
        let mut using = self.connection().await?;
        let link = using.link()?;
        let mut part = Part::default();
        if !jobs.is_empty() {
            part.jobs = self.read_jobs(link, &jobs).await?;
        }
        if !workflows.is_empty() {
            part.workflows = read_workflows(link, &workflows).await?;
        }
        if !keys.is_empty() {
            part.keys = read_keys(link, &scopes, &keys).await?;
        }
        let mut found: HashSet<Name> = part.jobs.iter().map(|job| Name::Job(job.entry.sequence)).collect();
        found.extend(part.workflows.iter().map(|workflow| Name::Workflow(workflow.sequence)));
        found.extend(part.keys.iter().map(|key| Name::Key(key.scope.clone(), key.key.clone())));
        part.gone = names.iter().filter(|name| !found.contains(*name)).cloned().collect();
        Ok(part)
    }

    async fn read_jobs(&self, link: &Link<'_>, seqs: &[i64]) -> Result<Vec<MovedJob>, Fault> {
        let inner = &self.inner;
        let rows = link.query(include_str!("sql/get_job.sql"), &[&seqs]).await?;
        let lanes: Vec<i32> = rows.iter().map(|row| row.get("lane")).collect();
        inner.lanes.learn_lanes(link, &lanes).await?;
        let Some(columns) = rows.first().map(JobColumns::of) else { return Ok(Vec::new()) };
        let mut jobs: HashMap<i64, MovedJob> = HashMap::with_capacity(rows.len());
        let mut completed: HashMap<i64, (crate::job::LeaseToken, crate::job::AttemptRecord)> = HashMap::new();
        for row in &rows {
            // Nothing falls due while it is moved.
            let row = job_rows::job_row(row, &columns, inner, Timestamp::EPOCH)?;
            let sequence = row.entry.sequence;
            let last = row.last_attempt();
            completed
                .extend(row.note.completed_by.clone().zip(last).map(|((token, _), last)| (sequence, (token, last))));
            let ended = row.entry.job.completed_at.map_or(0, |at| at.as_micros() / ORDER);
            let moved = MovedJob { entry: row.entry, ended, edges: Vec::new(), attempts: Vec::new(), logs: Vec::new() };
            jobs.insert(sequence, moved);
        }
        for row in &link.query(include_str!("moving/list_moved_attempts.sql"), &[&seqs]).await? {
            let seq: i64 = row.get("seq");
            if let Some(job) = jobs.get_mut(&seq) {
                let attempt = job_rows::attempt(row, job.entry.job.id)?;
                job.attempts.push((inner.tokens().token(seq, row.get("token")), attempt));
            }
        }
        for row in &link.query(include_str!("moving/list_moved_lines.sql"), &[&seqs]).await? {
            if let Some(job) = jobs.get_mut(&row.get::<_, i64>("seq")) {
                let version = u64::try_from(row.get::<_, i64>("version")).unwrap_or_default();
                job.logs.push(MovedLine { version, at: job_rows::time(row.get("at")), text: row.get("text") });
            }
        }
        for row in &link.query(include_str!("sql/list_dependencies.sql"), &[&seqs]).await? {
            if let Some(job) = jobs.get_mut(&row.get::<_, i64>("child")) {
                let kind = kind_of(row.get("kind"))?;
                job.edges.push(MovedEdge { parent: row.get("parent"), kind, open: row.get("open") });
            }
        }
        for (seq, last) in completed {
            if let Some(job) = jobs.get_mut(&seq) {
                job.attempts.push(last);
            }
        }
        Ok(seqs.iter().filter_map(|seq| jobs.remove(seq)).collect())
    }
}

async fn read_workflows(link: &Link<'_>, seqs: &[i64]) -> Result<Vec<MovedWorkflow>, Fault> {
    let rows = link.query(include_str!("moving/list_moved_workflows.sql"), &[&seqs]).await?;
    let workflow = |row: &super::driver_row::Row| MovedWorkflow {
        sequence: row.get("seq"),
        id: WorkflowId::from_uuid(row.get("workflow")),
        name: row.get("name"),
        created_at: job_rows::time(row.get("created_at")),
        pruned: u64::try_from(row.get::<_, i64>("pruned")).unwrap_or_default(),
    };
    Ok(rows.iter().map(workflow).collect())
}

async fn read_keys(link: &Link<'_>, scopes: &[&str], keys: &[&str]) -> Result<Vec<MovedKey>, Fault> {
    let rows = link.query(include_str!("moving/list_moved_keys.sql"), &[&scopes, &keys]).await?;
    let time = |micros: Option<i64>| micros.map(job_rows::time);
    let key = |row: &super::driver_row::Row| MovedKey {
        scope: row.get("scope"),
        key: row.get("key"),
        job: JobId::from_uuid(row.get::<_, Uuid>("job")),
        fingerprint: row.get("fingerprint"),
        until: u8::try_from(row.get::<_, i16>("until")).unwrap_or_default(),
        first_at: job_rows::time(row.get("first_at")),
        expires_at: time(row.get("expires_at")),
        look_at: time(row.get("look_at")),
    };
    Ok(rows.iter().map(key).collect())
}
