//! Lines over time, made of the samples that the server keeps in the store.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{BUCKETS, LaneSample, Sample, SampleStep, bucket_end};
use windlass::{Error, JobType, QueueName, State as JobState, Timestamp};

use super::ApiState;
use super::error::Refusal;
use super::extract::Query;
use super::roles::{Role, needs};

/// Most points of a line: more than a screen has columns to draw them.
const POINTS_MAX: usize = 500;
/// Most lines of an answer: more cannot be told apart.
const LINES_MAX: usize = 20;
/// A silence of this many steps is a gap and not a slope.
const GAP_STEPS: u32 = 3;

/// What the lines are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    Rate,
    Wait,
    Run,
    Depth,
    Failures,
}

/// What tells lines apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Nothing,
    Queue,
    Type,
}

/// Which part of the store is drawn, and when.
struct Asked {
    of: Of,
    by: By,
    queue: Option<QueueName>,
    job_type: Option<JobType>,
    from: Timestamp,
    to: Timestamp,
}

/// Lines over time.
#[derive(Debug, Serialize, ToSchema)]
struct Series {
    /// Seconds from one point to the next, unless some are missing.
    step: u64,
    /// The moments, oldest first.
    #[schema(value_type = Vec<String>)]
    at: Vec<Timestamp>,
    series: Vec<Line>,
    /// For waits and run times: of how many ends the numbers are.
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled: Option<Sampled>,
}

/// One line: a value for each moment, `null` for a gap.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
struct Line {
    /// The queue it is of, where lines are by queue; `other` for all that have no line of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// The type it is of, where lines are by type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    job_type: Option<String>,
    name: &'static str,
    values: Vec<Option<f64>>,
}

/// Of how many jobs something was looked at.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
struct Sampled {
    /// How many were looked at.
    taken: u64,
    /// How many there were.
    of: u64,
}

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(series)))
}

/// What the numbers were
///
/// Lines over the last 14 days at most, of samples that the server takes every 10 s and keeps in the store: `of=rate` is jobs
/// a second that came in and ended, `of=failures` attempts a second that failed, `of=depth` how many jobs stood where,
/// `of=wait` and `of=run` how many seconds jobs waited and ran (of the ends that were looked at). What is missing is `null`.
#[utoipa::path(
    get,
    path = "/v1/series",
    tag = "store",
    params(
        ("of" = Option<String>, Query, description = "`rate`, `wait`, `run`, `depth` or `failures`; `rate` unless said."),
        ("by" = Option<String>, Query, description = "`queue` or `type`: a line for each; at most 20 lines, the rest as `other`."),
        ("queue" = Option<String>, Query, description = "Only this queue."),
        ("type" = Option<String>, Query, description = "Only this type."),
        ("last" = Option<crate::wire::Span>, Query, description = "How far back; 5m unless said. Not beside `from`."),
        ("from" = Option<String>, Query, description = "From this moment on.", format = DateTime),
        ("to" = Option<String>, Query, description = "Up to this moment; now unless said.", format = DateTime),
    ),
    responses((status = 200, description = "At most 500 points.", body = Series))
)]
async fn series(State(state): State<ApiState>, mut query: Query) -> Result<Json<Series>, Refusal> {
    let now = state.store().now().await?;
    let asked = Asked::read(&mut query, now)?;
    query.done()?;
    let span = asked.to.since(asked.from);
    let fits = |step: &SampleStep| step.kept() >= now.since(asked.from) && span <= step.kept();
    let step = SampleStep::ALL.into_iter().find(fits).unwrap_or(SampleStep::Quarters);
    let _turn = state.bounds.turn().await?;
    // One sample more than asked for, so that the first point has a slope.
    let samples =
        state.store().samples(step, asked.from.minus(step.every()), asked.to.plus(Duration::from_micros(1))).await?;
    Ok(Json(asked.drawn(&samples, step)))
}

impl Asked {
    fn read(query: &mut Query, now: Timestamp) -> Result<Self, Error> {
        let of = match query.text("of")?.as_deref() {
            None | Some("rate") => Of::Rate,
            Some("wait") => Of::Wait,
            Some("run") => Of::Run,
            Some("depth") => Of::Depth,
            Some("failures") => Of::Failures,
            Some(_) => return Err(Error::invalid("of", "must be rate, wait, run, depth or failures")),
        };
        let by = match query.text("by")?.as_deref() {
            None => By::Nothing,
            Some("queue") => By::Queue,
            Some("type") => By::Type,
            Some(_) => return Err(Error::invalid("by", "must be queue or type")),
        };
        let longest = SampleStep::Quarters.kept();
        let last = query.duration("last", longest, Duration::from_secs(300))?;
        let to = query.time("to")?.unwrap_or(now);
        let from = query.time("from")?.unwrap_or_else(|| to.minus(last));
        if from >= to || to.since(from) > longest {
            return Err(Error::invalid("from", "must be before `to`, by 14 days at most"));
        }
        let queue = query.text("queue")?.map(QueueName::new).transpose()?;
        let job_type = query.text("type")?.map(JobType::new).transpose()?;
        Ok(Asked { of, by, queue, job_type, from, to })
    }

    /// The lines of what was asked for.
    fn drawn(&self, samples: &[Sample], step: SampleStep) -> Series {
        let every = samples.len().div_ceil(POINTS_MAX).max(1);
        // From the newest back, so that the last point is the newest sample.
        let first = samples.len() % every;
        let mut points: Vec<Point> = Vec::new();
        points.extend((first > 0).then(|| self.point(&samples[..first])));
        points.extend(samples[first..].chunks(every).map(|some| self.point(some)));
        let step = step.every() * u32::try_from(every).unwrap_or(u32::MAX);
        let pairs = Pairs { points: &points, gap: step * GAP_STEPS };
        let drawn = points.iter().filter(|point| point.at >= self.from).count();
        let mut lines: Vec<Line> = Vec::new();
        for group in self.groups(&points) {
            lines.extend(self.lines_of(&pairs, &group));
        }
        for line in &mut lines {
            line.values.drain(..points.len() - drawn);
        }
        let durations = matches!(self.of, Of::Wait | Of::Run);
        Series {
            step: step.as_secs(),
            at: points[points.len() - drawn..].iter().map(|point| point.at).collect(),
            series: lines,
            sampled: durations.then(|| pairs.sampled(self.of)),
        }
    }

    /// The sums of a few neighbouring samples by group: numbers of the last, durations of all.
    fn point(&self, samples: &[Sample]) -> Point {
        let mut groups: BTreeMap<String, Numbers> = BTreeMap::new();
        let last = samples.len().saturating_sub(1);
        for (place, sample) in samples.iter().enumerate() {
            for seen in sample.lanes.iter().filter(|seen| self.covers(seen)) {
                let key = match self.by {
                    By::Nothing => String::new(),
                    By::Queue => seen.lane.queue.to_string(),
                    By::Type => seen.lane.job_type.to_string(),
                };
                groups.entry(key).or_default().add(seen, place == last);
            }
        }
        Point { at: samples.last().map_or(Timestamp::EPOCH, |sample| sample.at), groups }
    }

    fn covers(&self, seen: &LaneSample) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == seen.lane.queue)
            && self.job_type.as_ref().is_none_or(|job_type| *job_type == seen.lane.job_type)
    }

    /// The groups that get lines: those with the most in them, and one of all others.
    fn groups(&self, points: &[Point]) -> Vec<Group> {
        let mut weights: BTreeMap<&str, u64> = BTreeMap::new();
        for point in points {
            for (name, numbers) in &point.groups {
                let weight = weights.entry(name).or_default();
                *weight = (*weight).max(numbers.weight(self.of));
            }
        }
        if self.by == By::Nothing {
            return vec![Group { name: None, members: weights.keys().map(|name| (*name).to_owned()).collect() }];
        }
        let mut names: Vec<(&str, u64)> = weights.into_iter().collect();
        names.sort_by_key(|(name, weight)| (std::cmp::Reverse(*weight), *name));
        let most = LINES_MAX / self.names().len();
        let (own, rest) = names.split_at(if names.len() > most { most - 1 } else { names.len() });
        let one = |(name, _): &(&str, u64)| Group { name: Some((*name).to_owned()), members: vec![(*name).to_owned()] };
        let mut groups: Vec<Group> = own.iter().map(one).collect();
        if !rest.is_empty() {
            let members = rest.iter().map(|(name, _)| (*name).to_owned()).collect();
            groups.push(Group { name: Some("other".to_owned()), members });
        }
        groups
    }

    /// The names of a group's lines.
    fn names(&self) -> &'static [&'static str] {
        match (self.of, self.by) {
            (Of::Rate, By::Nothing) => &["in", "out", "completed", "failed", "dead_letter", "cancelled"],
            (Of::Rate, _) => &["in", "out"],
            (Of::Failures, By::Nothing) => &["retried", "lost", "failed", "dead_letter"],
            (Of::Failures, _) => &["failures"],
            (Of::Depth, By::Nothing) => &["scheduled", "later", "running", "dead"],
            (Of::Depth, _) => &["waiting"],
            (Of::Wait | Of::Run, By::Nothing) => &["p50", "p95", "p99"],
            (Of::Wait | Of::Run, _) => &["p95"],
        }
    }

    fn lines_of(&self, pairs: &Pairs<'_>, group: &Group) -> Vec<Line> {
        let (queue, job_type) = match self.by {
            By::Nothing => (None, None),
            By::Queue => (group.name.clone(), None),
            By::Type => (None, group.name.clone()),
        };
        let line = |name: &'static str| {
            let values = match self.of {
                Of::Rate | Of::Failures => pairs.rates(group, |numbers| numbers.counter(name)),
                Of::Depth => pairs.values(group, |numbers| Some(drawn(numbers.depth(name)))),
                Of::Wait | Of::Run => pairs.values(group, |numbers| numbers.quantile(self.of, name)),
            };
            Line { queue: queue.clone(), job_type: job_type.clone(), name, values }
        };
        self.names().iter().copied().map(line).collect()
    }
}

/// Lanes that share lines.
struct Group {
    name: Option<String>,
    members: Vec<String>,
}

/// The numbers of one moment, by group.
struct Point {
    at: Timestamp,
    groups: BTreeMap<String, Numbers>,
}

impl Point {
    /// The sum of a group; `None` when nothing of it was there.
    fn sum(&self, group: &Group) -> Option<Numbers> {
        let mut sum: Option<Numbers> = None;
        for numbers in group.members.iter().filter_map(|name| self.groups.get(name)) {
            sum.get_or_insert_with(Numbers::default).join(numbers);
        }
        sum
    }
}

/// What is known of a group at one moment.
#[derive(Clone, Default)]
struct Numbers {
    accepted: u64,
    ended: [u64; 4],
    retried: u64,
    lost: u64,
    states: [u64; 9],
    waits: BTreeMap<u8, u64>,
    runs: BTreeMap<u8, u64>,
}

impl Numbers {
    fn add(&mut self, seen: &LaneSample, is_last: bool) {
        for (histogram, more) in [(&mut self.waits, &seen.waits), (&mut self.runs, &seen.runs)] {
            more.iter().for_each(|(number, count)| *histogram.entry(*number).or_default() += u64::from(*count));
        }
        if is_last {
            let lane = &seen.lane;
            self.accepted += lane.accepted;
            self.retried += lane.retried;
            self.lost += lane.lost;
            for (sum, count) in self.states.iter_mut().zip(lane.states).chain(self.ended.iter_mut().zip(lane.ended)) {
                *sum += count;
            }
        }
    }

    fn join(&mut self, other: &Numbers) {
        self.accepted += other.accepted;
        self.retried += other.retried;
        self.lost += other.lost;
        for (sum, count) in self.states.iter_mut().zip(other.states).chain(self.ended.iter_mut().zip(other.ended)) {
            *sum += count;
        }
        for (histogram, more) in [(&mut self.waits, &other.waits), (&mut self.runs, &other.runs)] {
            more.iter().for_each(|(number, count)| *histogram.entry(*number).or_default() += count);
        }
    }

    fn weight(&self, of: Of) -> u64 {
        match of {
            Of::Rate => self.accepted + self.ended.iter().sum::<u64>(),
            Of::Failures => self.counter("failures"),
            Of::Depth => self.depth("waiting"),
            Of::Wait | Of::Run => self.ended.iter().sum(),
        }
    }

    /// A number that only grows.
    fn counter(&self, name: &str) -> u64 {
        let [completed, failed, dead_letter, cancelled] = self.ended;
        match name {
            "in" => self.accepted,
            "out" => completed + failed + dead_letter + cancelled,
            "completed" => completed,
            "failed" => failed,
            "dead_letter" => dead_letter,
            "cancelled" => cancelled,
            "retried" => self.retried,
            "lost" => self.lost,
            _ => self.retried + self.lost + failed + dead_letter,
        }
    }

    /// How many jobs stand somewhere.
    fn depth(&self, name: &str) -> u64 {
        let states: &[JobState] = match name {
            "later" => &[JobState::Pending, JobState::Delayed, JobState::Retrying],
            "running" => &[JobState::Running],
            "dead" => &[JobState::Failed, JobState::DeadLetter],
            _ => &[JobState::Scheduled],
        };
        states.iter().map(|state| self.states[usize::from(state.number())]).sum()
    }

    fn histogram(&self, of: Of) -> &BTreeMap<u8, u64> {
        if of == Of::Wait { &self.waits } else { &self.runs }
    }

    /// The end of the bucket that a share of the durations does not exceed, in seconds.
    fn quantile(&self, of: Of, name: &str) -> Option<f64> {
        let histogram = self.histogram(of);
        let total: u64 = histogram.values().sum();
        let percent = match name {
            "p50" => 50,
            "p95" => 95,
            _ => 99,
        };
        let wanted = (total * percent).div_ceil(100);
        let mut passed = 0;
        let found = histogram.iter().find(|(_, count)| {
            passed += **count;
            passed >= wanted
        });
        found.filter(|_| total > 0).map(|(number, _)| bucket_end((*number).min(BUCKETS - 1)).as_secs_f64())
    }
}

/// Points with their neighbours.
struct Pairs<'p> {
    points: &'p [Point],
    gap: Duration,
}

impl Pairs<'_> {
    /// How much a number grew a second from point to point; none where it fell, or where too long a time is missing.
    fn rates(&self, group: &Group, of: impl Fn(&Numbers) -> u64) -> Vec<Option<f64>> {
        let mut values = vec![None; self.points.len().min(1)];
        values.extend(self.points.windows(2).map(|pair| {
            let [before, after] = pair else { return None };
            let time = after.at.since(before.at);
            // A lane that came since has grown from nothing.
            let was = before.sum(group).map_or(0, |numbers| of(&numbers));
            let more = of(&after.sum(group)?).checked_sub(was)?;
            (time <= self.gap).then(|| drawn(more) / time.as_secs_f64())
        }));
        values
    }

    fn values(&self, group: &Group, of: impl Fn(&Numbers) -> Option<f64>) -> Vec<Option<f64>> {
        self.points.iter().map(|point| of(&point.sum(group)?)).collect()
    }

    fn sampled(&self, of: Of) -> Sampled {
        let all = |point: &Point| point.groups.values().map(|numbers| numbers.ended.iter().sum::<u64>()).sum::<u64>();
        let ended = self.points.last().map_or(0, all).saturating_sub(self.points.first().map_or(0, all));
        let rest = self.points.iter().skip(1);
        let taken =
            rest.flat_map(|point| point.groups.values()).map(|numbers| numbers.histogram(of).values().sum::<u64>());
        Sampled { taken: taken.sum(), of: ended }
    }
}

#[expect(clippy::cast_precision_loss, reason = "lines are drawn, not counted")]
fn drawn(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use windlass::store::{LaneRecord, bucket};

    use super::*;

    fn sample(seconds: i64, lanes: &[(&str, u64, u64)]) -> Sample {
        let lane = |(queue, accepted, completed): &(&str, u64, u64)| {
            let names = (QueueName::new(*queue).expect("a queue"), JobType::new("t").expect("a type"));
            let mut lane = LaneRecord { accepted: *accepted, ..LaneRecord::new(names.0, names.1) };
            lane.ended[0] = *completed;
            lane.states[2] = accepted - completed;
            let seen = vec![(bucket(Duration::from_secs(1)), 9), (bucket(Duration::from_secs(60)), 1)];
            LaneSample { lane, waits: seen.clone(), runs: seen }
        };
        Sample { at: Timestamp::from_seconds(seconds), lanes: lanes.iter().map(lane).collect() }
    }

    fn asked(of: Of, by: By) -> Asked {
        let (from, to) = (Timestamp::from_seconds(100), Timestamp::from_seconds(1_000_000));
        Asked { of, by, queue: None, job_type: None, from, to }
    }

    fn line<'l>(series: &'l Series, name: &str) -> &'l [Option<f64>] {
        &series.series.iter().find(|line| line.name == name).expect("a line").values
    }

    #[test]
    fn rates_are_differences_and_gaps_are_null() {
        let samples = [
            sample(90, &[("a", 10, 5)]),
            sample(100, &[("a", 60, 30)]),
            sample(110, &[("a", 60, 40), ("b", 20, 0)]),
            sample(200, &[("a", 90, 40), ("b", 20, 0)]),
            sample(210, &[("a", 80, 45), ("b", 20, 0)]),
        ];
        let series = asked(Of::Rate, By::Nothing).drawn(&samples, SampleStep::Seconds);
        assert_eq!(series.at.len(), 4, "the sample before the first is only for its slope");
        assert_eq!(
            line(&series, "in"),
            [Some(5.0), Some(2.0), None, None],
            "a silence is a gap, and so is a number that fell"
        );
        assert_eq!(line(&series, "completed"), [Some(2.5), Some(1.0), None, Some(0.5)]);
        let narrow = Asked { queue: QueueName::new("b").ok(), ..asked(Of::Rate, By::Nothing) };
        assert_eq!(line(&narrow.drawn(&samples, SampleStep::Seconds), "in"), [None, Some(2.0), None, Some(0.0)]);
    }

    #[test]
    fn lines_can_be_told_apart_by_queue_and_the_rest_is_added_up() {
        let names: Vec<String> = (0..30).map(|number| format!("q{number:02}")).collect();
        let lanes: Vec<(&str, u64, u64)> =
            names.iter().zip(0..).map(|(name, number)| (name.as_str(), 100 + number, 0)).collect();
        let series = asked(Of::Depth, By::Queue).drawn(&[sample(100, &lanes)], SampleStep::Seconds);
        assert_eq!(series.series.len(), LINES_MAX);
        assert_eq!(series.series[0].queue.as_deref(), Some("q29"), "the longest first");
        let other = series.series.last().expect("lines");
        assert_eq!(
            (other.queue.as_deref(), &other.values),
            (Some("other"), &vec![Some((100..111).sum::<u64>() as f64)])
        );
        let by_type = asked(Of::Rate, By::Type).drawn(&[sample(100, &lanes)], SampleStep::Seconds);
        assert_eq!(by_type.series.iter().map(|line| line.name).collect::<Vec<_>>(), ["in", "out"]);
    }

    #[test]
    fn durations_are_quantiles_and_say_of_how_many() {
        let samples = [sample(100, &[("a", 100, 0)]), sample(110, &[("a", 100, 50)])];
        let series = asked(Of::Wait, By::Nothing).drawn(&samples, SampleStep::Seconds);
        assert_eq!(series.sampled, Some(Sampled { taken: 10, of: 50 }));
        let end = |seconds| bucket_end(bucket(Duration::from_secs(seconds))).as_secs_f64();
        assert_eq!(line(&series, "p50")[1], Some(end(1)));
        assert_eq!(line(&series, "p99")[1], Some(end(60)));
    }

    #[test]
    fn an_answer_is_bounded_and_ends_with_the_newest_sample() {
        let samples: Vec<Sample> = (0..1441).map(|minute| sample(100 + 60 * minute, &[("a", 1, 0)])).collect();
        let series = asked(Of::Wait, By::Nothing).drawn(&samples, SampleStep::Minutes);
        assert!(series.at.len() <= POINTS_MAX, "{}", series.at.len());
        assert_eq!((series.step, series.at.last()), (180, Some(&Timestamp::from_seconds(100 + 60 * 1440))));
        assert!(asked(Of::Rate, By::Queue).drawn(&[], SampleStep::Seconds).series.is_empty());
    }
}
