//! `windlass errors`: what failed, and whether it is one thing or many.

use clap::Args;
use serde::Serialize;
use windlass::store::{Cursor, FAULTS_MAX, FaultGroup, FaultQuery};
use windlass::{JobType, QueueName, Timestamp};

use super::connect::Reach;
use super::output::{OutputArgs, PageArgs, Row};
use super::parse;
use super::table::{Cell, cut, relative};
use crate::figures::number;
use crate::wire;

/// How much of a pattern a table shows.
const PATTERN_CHARS: usize = 70;

/// What `windlass errors` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
A group is the jobs of one type that died with one code or, without a code, with messages
that differ only in numbers, ids, quoted text and paths. Act on a whole group by its name:
  windlass errors --queue mail
  windlass dlq requeue --fingerprint 2f0c12ab3d4e5f60 --dry-run")]
pub(crate) struct Arguments {
    /// Jobs that failed and are tried again, in place of dead ones
    #[arg(long)]
    retrying: bool,
    /// Only jobs in this queue
    #[arg(short, long, value_name = "QUEUE", value_parser = parse::queue)]
    queue: Option<QueueName>,
    /// Only jobs of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = parse::job_type)]
    job_type: Option<JobType>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    let next = async |limit: usize, after: Option<Cursor>| {
        let query = FaultQuery {
            retrying: arguments.retrying,
            queue: arguments.queue.clone(),
            job_type: arguments.job_type.clone(),
            limit: limit.min(FAULTS_MAX),
            after,
        };
        session.store().faults(&query).await
    };
    let nothing = match arguments.retrying {
        true => "no job is between two tries, or none that matches",
        false => "no job failed for good, or none that matches",
    };
    session.out.pages(&arguments.page, nothing, next).await
}

impl Row for FaultGroup {
    fn headings(wide: bool) -> Vec<&'static str> {
        let mut headings = vec!["FINGERPRINT", "JOBS", "TYPE", "LAST", "FIRST", "FAILURE"];
        if wide {
            headings.splice(5..5, ["RECENT", "QUEUES", "NEWEST"]);
        }
        headings
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        let time = |at: Timestamp| if wide { at.to_string() } else { relative(at, now) };
        let mut cells = vec![
            Cell::new(self.fingerprint.to_string()),
            Cell::new(format!("{}{}", number(self.count), if self.capped { "+" } else { "" })),
            Cell::new(self.job_type.as_str()),
            Cell::new(time(self.last_at)),
            Cell::new(time(self.first_at)),
        ];
        if wide {
            let queues: Vec<_> = self.queues.iter().map(ToString::to_string).collect();
            let newest = self.sample.first().map_or_else(|| "-".to_owned(), ToString::to_string);
            cells.extend([Cell::new(number(self.recent)), Cell::new(queues.join(",")), Cell::new(newest)]);
        }
        let said = format!("{}: {}", self.code.as_deref().unwrap_or(self.category.as_str()), self.pattern);
        cells.push(Cell::new(if wide { said } else { cut(&said, PATTERN_CHARS) }));
        cells
    }

    fn id(&self) -> String {
        self.fingerprint.to_string()
    }

    fn wire(&self) -> impl Serialize {
        wire::ErrorGroup::from(self)
    }
}
