//! `windlass attention`: what needs somebody, worst first.

use clap::Args;
use serde::Serialize;
use windlass::Timestamp;

use super::connect::Reach;
use super::output::{OutputArgs, Row};
use super::table::{Cell, relative};
use crate::serve::attention::{AttentionItem, Seen, Severity};

/// What `windlass attention` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Changes nothing. The page, `windlass top` and `windlass doctor` show the same.
Example:
  windlass attention -o json | jq -r '.items[].act'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    let items = Seen::look(&**session.store()).await?.attention();
    session.out.all(&items, "nothing needs you")
}

impl Row for AttentionItem {
    fn headings(wide: bool) -> Vec<&'static str> {
        if wide {
            vec!["SEVERITY", "KIND", "SINCE", "WHAT", "HELPS", "LOOK"]
        } else {
            vec!["SEVERITY", "SINCE", "WHAT", "HELPS"]
        }
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        let severity = match self.severity {
            Severity::Bad => "bad",
            Severity::Warning => "warning",
        };
        let since =
            self.since.map_or_else(|| "-".to_owned(), |at| if wide { at.to_string() } else { relative(at, now) });
        let helps = Cell::new(self.act.as_deref().unwrap_or("-"));
        match wide {
            false => vec![Cell::new(severity), Cell::new(since), Cell::new(&self.text), helps],
            true => {
                let kind = serde_json::to_value(self.kind).ok();
                let kind = kind.and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default();
                vec![
                    Cell::new(severity),
                    Cell::new(kind),
                    Cell::new(since),
                    Cell::new(&self.text),
                    helps,
                    Cell::new(&self.link),
                ]
            }
        }
    }

    fn id(&self) -> String {
        self.text.clone()
    }

    fn wire(&self) -> impl Serialize {
        self.clone()
    }
}
