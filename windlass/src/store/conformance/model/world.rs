//! A store and the model side by side: every step is done by both, and their answers must be the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::history::{ActDraft, ClaimDraft, Draft, First, On, Op, Pick, QUEUES, Say, Span};
use super::invariants::Seen;
use super::observed::{differ, tag_text, worker_name};
use super::reference::{Link, Model, ModelClaim, ModelSettled, Name, Plan, seconds};
use super::translate;
use crate::clock::{Clock, ManualClock};
use crate::flow::ControlEdit;
use crate::job::{JobId, JobRecord, Lease, LeaseKey, LeaseToken, QueueName, Settlement, Stale, State, WorkflowId};
use crate::store::{
    Act, ClaimRequest, Cursor, Edit, Extended, Filter, Operation, Retention, Save, Settled, Store, Target, Upkeep,
};
use crate::workflow::Submission;

/// A store, the model of it, and what a test remembers of both.
pub(super) struct World {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: ManualClock,
    pub(super) model: Model,
    /// The id of each job of the model, once it is known.
    pub(super) ids: Vec<Option<JobId>>,
    pub(super) names: HashMap<JobId, Name>,
    /// All jobs as they were after the last step.
    pub(super) last: Vec<JobRecord>,
    pub(super) seen: Seen,
    pub(super) workflows: Vec<Option<WorkflowId>>,
    pub(super) events: Option<Cursor>,
    pub(super) steps: usize,
    /// How many jobs of the model have their final place in the order of submission.
    pub(super) sequenced: usize,
    /// What was done and answered, where somebody wants to read it.
    pub(super) trace: Option<Vec<String>>,
    held: Vec<Held>,
    sent: Vec<Sent>,
    serial: usize,
}

/// A lease that was once granted. Its holder may have forgotten it, or come back from the dead with it.
struct Held {
    job: Name,
    record: JobRecord,
    token: LeaseToken,
}

/// A settlement that was once sent.
struct Sent {
    settlement: Settlement,
    held: usize,
    say: Say,
    children: Vec<Plan>,
}

/// What an answer of a store should not have been.
pub(super) type Said<T = ()> = Result<T, String>;

impl World {
    pub(super) async fn new(store: Arc<dyn Store>, clock: ManualClock) -> Said<Self> {
        let events = store.events(None, 1).await.map_err(|error| format!("events: {error}"))?;
        if !events.items.is_empty() {
            return Err("events without a cursor should be an empty page".to_owned());
        }
        let mut model = Model::default();
        model.tick(clock.now());
        Ok(World {
            store,
            clock,
            model,
            ids: Vec::new(),
            names: HashMap::new(),
            last: Vec::new(),
            seen: Seen::default(),
            workflows: Vec::new(),
            events: events.next,
            steps: 0,
            sequenced: 0,
            trace: None,
            held: Vec::new(),
            sent: Vec::new(),
            serial: 0,
        })
    }

    /// Does one step on both sides and compares.
    pub(super) async fn step(&mut self, op: &Op) -> Said {
        self.steps += 1;
        self.model.count(translate::op_name(op));
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>3}. {op:?}", self.steps));
        }
        match op {
            Op::Enqueue { jobs, workflow } => self.enqueue(jobs, *workflow).await?,
            Op::Claim(claim) => self.claim(claim).await?,
            Op::Extend { leases, seconds } => self.extend(leases, *seconds).await?,
            Op::Save { lease, checkpoint, progress } => self.save(*lease, *checkpoint, *progress).await?,
            Op::Settle(said) => self.settle(said).await?,
            Op::Repeat { sent } => self.repeat(*sent).await?,
            Op::Act { jobs, apt, act, dry_run } => self.act(jobs, *apt, *act, *dry_run).await?,
            Op::Sweep { queue, act, limit } => self.sweep(*queue, *act, *limit).await?,
            Op::Pause { queue, paused } => self.pause(*queue, *paused).await?,
            Op::Upkeep { limit, kept } => self.upkeep(*limit, *kept).await?,
            Op::Control { queue, control } => self.control(*queue, *control).await?,
            Op::Hold { queue, gate, seconds } => self.hold(*queue, *gate, *seconds).await?,
            Op::Resume { queue, key } => self.resume(*queue, *key).await?,
            Op::Advance(span) => self.advance(*span),
        }
        self.model.law()?;
        self.look(op).await
    }

    pub(super) fn note(&mut self, words: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("       → {}", words()));
        }
    }

    fn id(&self, name: Name) -> JobId {
        self.ids[name].expect("every job is known by its id after the step that made it")
    }

    // Submission.

    async fn enqueue(&mut self, drafts: &[Draft], workflow: bool) -> Said {
        let plans = self.plan(drafts, None);
        let expected = self.model.insert(&plans, workflow);
        let answer = match self.submission(&plans, workflow) {
            Ok(submission) => self.store.insert(submission).await,
            Err(refused) => Err(refused),
        };
        match (answer, expected) {
            (Ok(inserted), Ok(expected)) => {
                self.note(|| format!("{:?}", expected.iter().map(|one| (one.job, one.existing)).collect::<Vec<_>>()));
                self.ids.resize(self.model.jobs.len(), None);
                if inserted.jobs.len() != expected.len() || inserted.workflow.is_some() != workflow {
                    return Err(format!("insert answered {inserted:?} for {} jobs", expected.len()));
                }
                for (one, expected) in inserted.jobs.iter().zip(&expected) {
                    if !expected.existing {
                        self.bind(expected.job, one.id)?;
                    }
                    let store = (self.names.get(&one.id).copied(), one.existing, one.state, one.matches);
                    let model = (Some(expected.job), expected.existing, expected.state, expected.matches);
                    differ("inserted (job, existing, state, matches)", &store, &model)?;
                }
                if workflow {
                    self.workflows.push(inserted.workflow);
                }
                Ok(())
            }
            (Err(error), Err(expected)) if expected.contains(&error.name()) => {
                self.note(|| format!("refused: {error}"));
                self.model.count(translate::refusal(error.name()));
                Ok(())
            }
            (answer, expected) => Err(format!("insert: the store says {answer:?}, the model {expected:?}")),
        }
    }

    /// Notes that this is the model's job.
    pub(super) fn bind(&mut self, name: Name, id: JobId) -> Said {
        if let Some(other) = self.names.insert(id, name) {
            return Err(format!("job {name} has the id of job {other}"));
        }
        self.ids[name] = Some(id);
        Ok(())
    }

    /// Finds out what drafts mean here and now.
    fn plan(&mut self, drafts: &[Draft], parent: Option<Name>) -> Vec<Plan> {
        let now = self.clock.now();
        let known = self.model.jobs.len();
        let open: Vec<Name> = (0..known).filter(|name| self.model.jobs[*name].unfinished()).collect();
        let mut plans = Vec::new();
        for (place, draft) in drafts.iter().enumerate() {
            let link = |on: &On| match *on {
                On::Open(nth) if !open.is_empty() => Some(Link::Job(open[newest(nth, open.len())])),
                On::Known(nth) | On::Open(nth) => (known > 0).then(|| Link::Job(newest(nth, known))),
                On::Earlier(nth) => (place > 0).then(|| Link::Place(usize::from(nth) % place)),
                On::Place(nth) => Some(Link::Place(usize::from(nth) % drafts.len())),
                On::Parent => parent.map(Link::Job),
                On::Nobody => Some(Link::Nobody),
            };
            let links = draft.depends_on.iter().filter_map(|(on, kind)| Some((link(on)?, *kind))).collect();
            let at = match draft.first {
                First::At(after) if after < 0 => now.minus(seconds(after.unsigned_abs().into())),
                First::At(after) => now.plus(seconds(after.unsigned_abs().into())),
                First::Now | First::In(_) => now,
            };
            let mut plan = Plan { serial: self.serial, draft: draft.clone(), at, links };
            self.serial += 1;
            if parent.is_some() && plan.is_refused_at_once() && plan.starts_too_late(now) {
                // The check of a child refuses this before any settlement exists.
                match plan.draft.first {
                    First::In(_) => plan.draft.first = First::Now,
                    First::Now | First::At(_) => plan.draft.lifetime = None,
                }
            }
            plans.push(plan);
        }
        plans
    }

    fn submission(&self, plans: &[Plan], workflow: bool) -> crate::error::Result<Submission> {
        let specs: crate::error::Result<Vec<_>> = plans.iter().map(|plan| translate::spec(plan, &self.ids)).collect();
        match workflow {
            true => Submission::workflow("flow", specs?),
            false => Submission::new(specs?),
        }
    }

    // The lease holder's calls.

    async fn claim(&mut self, draft: &ClaimDraft) -> Said {
        let mut queues: Vec<(u8, usize)> = Vec::new();
        for (queue, room) in &draft.queues {
            if !queues.iter().any(|(known, _)| known == queue) {
                queues.push((*queue, usize::from(*room)));
            }
        }
        let lease_time = draft.seconds.map(|given| seconds(given.into()));
        let limit = usize::from(draft.limit);
        let claim =
            ModelClaim { queues: &queues, types: draft.types.as_deref(), limit, lease_time, worker: draft.worker };
        let request = ClaimRequest {
            queues: queues.iter().map(|(queue, room)| (queue_name(*queue), *room)).collect(),
            types: draft.types.as_ref().map(|types| types.iter().map(|one| translate::job_type(*one)).collect()),
            limit,
            lease_time,
            worker: crate::job::WorkerId::new(worker_name(draft.worker)).expect("a plain name"),
        };
        let claimed = self.store.claim(&request).await.map_err(|error| format!("claim: {error}"))?;
        let names: Vec<_> = claimed.iter().map(|one| self.names.get(&one.job.id).copied()).collect();
        let said: Vec<Name> = names.iter().copied().map_while(|name| name).collect();
        let expected = self.model.claim(&claim, &said);
        self.note(|| format!("jobs {expected:?}"));
        differ("claimed jobs", &names, &expected.iter().copied().map(Some).collect())?;
        let shared: Vec<QueueName> =
            request.queues.iter().map(|(queue, _)| queue.clone()).filter(|queue| self.shares(queue)).collect();
        self.seen.look_at_claim(&claimed, &request, (&self.last, &shared), self.clock.now())?;
        for (one, name) in claimed.into_iter().zip(expected) {
            let job = &self.model.jobs[name];
            let expires_in = job.lease.map(|lease| lease.expires_at.since(self.model.now));
            let store = (one.lease.job(), one.lease.attempt(), one.lease.version(), Some(one.expires_in));
            differ(
                "claimed (job, attempt, version, expires_in)",
                &store,
                &(self.id(name), job.attempt, job.version, expires_in),
            )?;
            self.compare_job(&one.job, name)?;
            let token = one.lease.key().token;
            self.held.push(Held { job: name, record: one.job, token });
        }
        Ok(())
    }

    /// The lease that is meant, if any was ever granted.
    fn pick(&self, pick: Pick) -> Option<usize> {
        let all = || 0..self.held.len();
        let fence = |held: &usize| self.model.fence(self.held[*held].job, *held);
        let (nth, meant): (u8, Vec<usize>) = match pick {
            Pick::Live(nth) => (nth, all().filter(|held| fence(held).is_ok()).collect()),
            Pick::Ghost(nth) => (nth, all().filter(|held| fence(held) == Err(Stale::Mismatch)).collect()),
            Pick::Any(nth) => (nth, all().collect()),
        };
        match (meant.len(), self.held.len()) {
            (_, 0) => None,
            (0, granted) => Some(newest(nth, granted)),
            (some, _) => Some(meant[newest(nth, some)]),
        }
    }

    fn key(&self, held: usize) -> LeaseKey {
        LeaseKey { job: self.id(self.held[held].job), token: self.held[held].token }
    }

    async fn extend(&mut self, picks: &[Pick], given: Option<u8>) -> Said {
        let held: Vec<usize> = picks.iter().filter_map(|pick| self.pick(*pick)).collect();
        let keys: Vec<LeaseKey> = held.iter().map(|held| self.key(*held)).collect();
        let lease_time = given.map(|given| seconds(given.into()));
        let answers = self.store.extend(&keys, lease_time).await.map_err(|error| format!("extend: {error}"))?;
        let mut store = Vec::new();
        for answer in answers {
            store.push(match answer {
                Extended::Held { expires_in, cancel } => {
                    Ok((expires_in, cancel.map(|asked| (asked.by.unwrap_or_default(), asked.at))))
                }
                Extended::Lost(stale) => Err(stale),
            });
        }
        let mut model = Vec::new();
        for held in held {
            let name = self.held[held].job;
            let answer = self.model.extend(name, held, lease_time);
            self.model.count(answer.as_ref().err().map_or("extend: held", |stale| translate::lost(*stale)));
            model.push(answer.map(|expires_in| (expires_in, self.model.jobs[name].cancel.clone())));
        }
        self.note(|| format!("{model:?}"));
        differ("extended", &store, &model)
    }

    async fn save(&mut self, pick: Pick, checkpoint: Option<u8>, progress: Option<u8>) -> Said {
        let Some(held) = self.pick(pick) else { return Ok(()) };
        let model = self.model.save(self.held[held].job, held, checkpoint, progress);
        let save = translate::save(Save::under(self.key(held)), checkpoint, progress);
        let store = self.store.save(&[save]).await.map_err(|error| format!("save: {error}"))?;
        self.model.count(if model.is_ok() { "save: kept" } else { "save: stale" });
        self.note(|| format!("{model:?}"));
        differ("saved", &store, &vec![model])
    }

    async fn settle(&mut self, said: &[(Pick, Say)]) -> Said {
        let mut sending = Vec::new();
        for (pick, say) in said {
            let Some(held) = self.pick(*pick) else { return Ok(()) };
            let children = match say {
                Say::Complete { children, .. } => self.plan(children, Some(self.held[held].job)),
                _ => Vec::new(),
            };
            let lease = Lease::granted(&self.held[held].record, self.held[held].token);
            let settlement = translate::settlement(lease, say, &children, &self.ids)?;
            sending.push(Sent { settlement, held, say: say.clone(), children });
        }
        let mut expected = Vec::new();
        for sent in &sending {
            expected.push(self.model.settle(self.held[sent.held].job, sent.held, &sent.say, &sent.children));
        }
        let first = self.sent.len();
        let (settlements, rest): (Vec<_>, Vec<_>) =
            sending.into_iter().map(|sent| (sent.settlement, (sent.held, sent.say, sent.children))).unzip();
        let answers = self.store.settle(&settlements).await.map_err(|error| format!("settle: {error}"))?;
        for (settlement, (held, say, children)) in settlements.into_iter().zip(rest) {
            self.sent.push(Sent { settlement, held, say, children });
        }
        if answers.len() != expected.len() {
            return Err(format!("{} settlements had {} answers", expected.len(), answers.len()));
        }
        for (place, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
            self.compare_settled(first + place, answer, expected)?;
        }
        Ok(())
    }

    async fn repeat(&mut self, nth: u8) -> Said {
        if self.sent.is_empty() {
            return Ok(());
        }
        let place = newest(nth, self.sent.len());
        let sent = &self.sent[place];
        let expected = self.model.settle(self.held[sent.held].job, sent.held, &sent.say, &sent.children);
        let settlements = std::slice::from_ref(&sent.settlement);
        let answers = self.store.settle(settlements).await.map_err(|error| format!("settle: {error}"))?;
        match answers.as_slice() {
            [answer] => self.compare_settled(place, answer, &expected),
            answers => Err(format!("one settlement had the answers {answers:?}")),
        }
    }

    fn compare_settled(&mut self, sent: usize, answer: &Settled, expected: &ModelSettled) -> Said {
        let job = self.held[self.sent[sent].held].job;
        let agree = match (answer, expected) {
            (Settled::Applied(store), ModelSettled::Applied(model)) => store == model,
            (Settled::AlreadyApplied, ModelSettled::AlreadyApplied) => true,
            (Settled::Stale(store), ModelSettled::Stale(model)) => store == model,
            (Settled::Refused(error), ModelSettled::Refused(names)) => names.contains(&error.name()),
            _ => false,
        };
        self.model.count(match answer {
            Settled::Applied(_) => "settle: applied",
            Settled::AlreadyApplied => "settle: already applied",
            Settled::Stale(Stale::NotRunning) => "settle: not running",
            Settled::Stale(Stale::Expired) => "settle: expired",
            Settled::Stale(Stale::Mismatch) => "settle: mismatch",
            Settled::Refused(error) => translate::refusal(error.name()),
        });
        let held = self.sent[sent].held;
        self.note(|| format!("lease {held} on job {job}: {answer:?}"));
        match agree {
            true => Ok(()),
            false => Err(format!("settling job {job}: the store says {answer:?}, the model {expected:?}")),
        }
    }

    // Operators and upkeep.

    async fn act(&mut self, jobs: &[u8], apt: bool, act: ActDraft, dry_run: bool) -> Said {
        let all = 0..self.model.jobs.len();
        let mut meant: Vec<Name> = all.clone().filter(|name| !apt || self.is_apt(*name, act)).collect();
        if meant.is_empty() {
            meant = all.collect();
        }
        let mut names: Vec<Name> = Vec::new();
        for nth in jobs.iter().filter(|_| !meant.is_empty()) {
            let name = meant[newest(*nth, meant.len())];
            if !names.contains(&name) && (names.is_empty() || !dry_run) {
                names.push(name);
            }
        }
        let target = Target::Jobs(names.iter().map(|name| self.id(*name)).collect());
        let (operation, by) = self.operation(target, act, dry_run);
        let answer = self.store.operate(&operation).await.map_err(|error| format!("operate: {error}"))?;
        let mut refused = Vec::new();
        for name in &names {
            if let Err(error) = self.model.act(*name, act, &by, dry_run) {
                self.model.count(translate::refusal(error));
                refused.push((self.id(*name), error));
            }
        }
        self.note(|| format!("jobs {names:?}, refused {:?}", refused.iter().map(|(_, why)| why).collect::<Vec<_>>()));
        let changed = (names.len() - refused.len()) as u64;
        let store: Vec<_> = answer.refused.iter().map(|(id, error)| (*id, error.name())).collect();
        differ("operated (changed, refused)", &(answer.changed, store), &(changed, refused))
    }

    /// Whether a job is one that such an act is for.
    fn is_apt(&self, name: Name, act: ActDraft) -> bool {
        let job = &self.model.jobs[name];
        let dead = matches!(job.state, State::Failed | State::DeadLetter);
        !job.gone
            && match act {
                ActDraft::Cancel { force } => job.unfinished() && (!force || job.state == State::Running),
                ActDraft::Requeue { with_dependents: false, .. } => dead,
                ActDraft::Requeue { .. } => {
                    dead && (0..self.model.jobs.len()).any(|other| self.model.died_of(other, name))
                }
                ActDraft::DeadLetter => job.unfinished() || job.state == State::Failed,
                ActDraft::Delete => !job.unfinished(),
                ActDraft::Edit { .. } => job.unfinished(),
            }
    }

    async fn sweep(&mut self, queue: u8, act: ActDraft, limit: u8) -> Said {
        let filter = Filter { queue: Some(queue_name(queue)), ..Filter::default() };
        let (mut changed, mut after) = (0, None);
        for _ in 0..=self.model.jobs.len() {
            let target = Target::Matching { filter: filter.clone(), limit: limit.into(), after };
            let (operation, _) = self.operation(target, act, false);
            let answer = self.store.operate(&operation).await.map_err(|error| format!("operate: {error}"))?;
            if !answer.refused.is_empty() {
                return Err(format!("a sweep refused {:?}", answer.refused));
            }
            changed += answer.changed;
            after = answer.next;
            if after.is_none() {
                break;
            }
        }
        if after.is_some() {
            return Err("a sweep never ends".to_owned());
        }
        let by = self.operator();
        let of_queue = |name: &Name| self.model.jobs[*name].plan.draft.queue == queue;
        let mut names: Vec<Name> = (0..self.model.jobs.len()).filter(of_queue).collect();
        names.sort_by_key(|name| self.model.jobs[*name].sequence);
        let expected = names.into_iter().filter(|name| self.model.act(*name, act, &by, false).is_ok()).count() as u64;
        self.note(|| format!("{expected} changed"));
        differ("swept", &changed, &expected)
    }

    fn operator(&self) -> String {
        format!("op{}", self.steps)
    }

    fn operation(&self, target: Target, act: ActDraft, dry_run: bool) -> (Operation, String) {
        let act = match act {
            ActDraft::Cancel { force } => Act::Cancel { force },
            ActDraft::Requeue { delay, keep_counters, with_dependents } => {
                let run_at = delay.map(|delay| self.clock.now().plus(seconds(delay.into())));
                Act::Requeue(crate::job::RequeueOptions { run_at, keep_counters, with_dependents })
            }
            ActDraft::DeadLetter => Act::DeadLetter,
            ActDraft::Delete => Act::Delete,
            ActDraft::Edit { priority, tag } => Act::Edit(Edit {
                priority: priority.map(super::reference::priority),
                tags: tag.map(|tag| [("tag".to_owned(), tag_text(tag).to_owned())].into()),
                ..Edit::default()
            }),
        };
        let by = self.operator();
        (Operation { target, act, by: Some(by.clone()), why: "because".to_owned(), dry_run }, by)
    }

    async fn pause(&mut self, queue: u8, paused: bool) -> Said {
        self.model.paused[usize::from(queue)] = paused;
        let edit = ControlEdit::pause(queue_name(queue), paused);
        self.store.control(&edit, None).await.map(drop).map_err(|error| format!("pause: {error}"))
    }

    async fn upkeep(&mut self, limit: u8, kept: Option<u8>) -> Said {
        let (limit, kept) = (usize::from(limit), kept.map(|kept| seconds(kept.into())));
        let retention = Retention { completed: kept, cancelled: kept, failed: kept, dead_letter: kept };
        let report =
            self.store.upkeep(&Upkeep { limit, retention }).await.map_err(|error| format!("upkeep: {error}"))?;
        let expected = self.model.upkeep(limit);
        let counts = (report.lifetimes, report.expired, report.fired);
        self.note(|| format!("{report:?}"));
        differ("upkeep (lifetimes, expired, fired)", &counts, &(expected.lifetimes, expected.expired, 0))?;
        let left = expected.left | self.compare_pruned(report.pruned, limit, kept).await?;
        let full = [report.lifetimes, report.expired, report.pruned].iter().any(|count| *count >= limit);
        if (left && !report.more) || (report.more && !full) {
            return Err(format!("upkeep says more = {}, but left = {left} and full = {full}: {report:?}", report.more));
        }
        Ok(())
    }

    /// Which ended jobs go first is the store's choice; gives whether some are left that could go.
    async fn compare_pruned(&mut self, pruned: usize, limit: usize, kept: Option<Duration>) -> Said<bool> {
        let here = |world: &World, name: &Name| world.ids.get(*name).copied().flatten();
        let named: Vec<Name> = (0..self.model.jobs.len()).filter(|name| here(self, name).is_some()).collect();
        let named: Vec<Name> = named.into_iter().filter(|name| !self.model.jobs[*name].gone).collect();
        let ids: Vec<JobId> = named.iter().map(|name| self.id(*name)).collect();
        let found = self.store.find(&ids).await.map_err(|error| format!("find: {error}"))?;
        let prunable = self.model.prunable(kept);
        let vanished = named.iter().zip(found).filter(|(_, found)| found.is_none()).map(|(name, _)| *name);
        let vanished: Vec<Name> = vanished.collect();
        if let Some(name) = vanished.iter().find(|name| !prunable.contains(name)) {
            return Err(format!("job {name} was pruned, but must be kept"));
        }
        let keys = self.model.lapsed_keys(&vanished);
        if pruned < vanished.len() || pruned > vanished.len() + keys || vanished.len() > limit {
            return Err(format!("{pruned} pruned: {vanished:?} of at most {limit}, and up to {keys} keys"));
        }
        let overdue = |name: &Name| !vanished.contains(name) && !self.model.was_needed_lately(*name);
        let left = prunable.iter().any(overdue);
        if prunable.len() <= limit && left {
            return Err(format!("of {prunable:?}, all of which may go, only {vanished:?} were pruned"));
        }
        for name in &vanished {
            self.model.count(if self.model.jobs[*name].own_kept().is_some() { "pruned by its own" } else { "pruned" });
            self.model.remove(*name);
        }
        Ok(left)
    }

    fn advance(&mut self, span: Span) {
        let next = self.model.next_moment();
        match span {
            Span::Millis(millis) => self.clock.advance(Duration::from_millis(millis.into())),
            Span::Next => next.into_iter().for_each(|at| self.clock.advance_to(at)),
            Span::JustBefore => {
                next.into_iter().for_each(|at| self.clock.advance_to(at.minus(Duration::from_micros(1))))
            }
        }
        self.model.tick(self.clock.now());
    }
}

/// The `nth` of `count`, the last one first.
fn newest(nth: u8, count: usize) -> usize {
    count - 1 - usize::from(nth) % count
}

pub(super) fn queue_name(queue: u8) -> QueueName {
    QueueName::new(QUEUES[usize::from(queue)]).expect("a plain name")
}
