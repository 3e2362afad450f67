//! The limits of the machine, in the same form as the measurements that are held against them.

use super::measure::{Measurement, Setting};

pub(super) async fn measure(setting: &Setting) -> anyhow::Result<Vec<Measurement>> {
    anyhow::bail!("a {} store has no limits of its own to measure", setting.store)
}
