//! Looks for contradictions in what is stored. Reads everything: for tests and for operators in doubt.

use super::Inner;
use super::fault::Fault;
use crate::job::State;
use crate::store::answer::counts;

impl Inner {
    pub(super) async fn check(&self) -> Result<Vec<String>, Fault> {
        let mut link = self.link().await?;
        // One snapshot for all statements, or what moves in between would look like a contradiction.
        link.begin().await?;
        let answer = self.contradictions(&link).await;
        link.roll_back().await;
        answer
    }

    async fn contradictions(&self, link: &super::link::Link<'_>) -> Result<Vec<String>, Fault> {
        link.batch("set transaction isolation level repeatable read").await?;
        let time = self.given_time();
        let mut found = Vec::new();
        for row in link.query(include_str!("sql/check_jobs.sql"), &[]).await? {
            found.push(format!("job {}: {}", row.get::<_, uuid::Uuid>("id"), row.get::<_, &str>("problem")));
        }
        let rows = link.query(include_str!("sql/check_counts.sql"), &[&time]).await?;
        let actual = counts(rows.iter().filter_map(|row| {
            let state = u8::try_from(row.get::<_, i16>("state")).ok().and_then(State::from_number)?;
            Some((state, u64::try_from(row.get::<_, i64>("count")).unwrap_or_default()))
        }));
        let lanes = self.counts_on(link).await?.lanes;
        // Where the store did not count to the end, there is nothing to compare.
        if lanes.iter().any(|lane| lane.at_least) {
            return Ok(found);
        }
        for state in State::ALL {
            let number = usize::from(state.number());
            let told: u64 = lanes.iter().map(|lane| lane.states[number]).sum();
            if told != actual[number] {
                found.push(format!("{told} jobs are counted as {state}, but {} are", actual[number]));
            }
        }
        Ok(found)
    }
}
