//! A graph of jobs: charge, then pack and write a receipt, then close with what both said.

use serde::{Deserialize, Serialize};
use windlass::{Client, Context, Failure, Job, Worker, Workflow};

#[derive(Serialize, Deserialize)]
struct Charge(u32);
#[derive(Serialize, Deserialize)]
struct Step(String);
#[derive(Serialize, Deserialize)]
struct Close(u32);

impl Job for Charge {
    const TYPE: &'static str = "charge";
}
impl Job for Step {
    const TYPE: &'static str = "step";
}
impl Job for Close {
    const TYPE: &'static str = "close";
}

async fn charge(job: Charge, _: Context) -> Result<String, Failure> {
    Ok(format!("order {} is paid", job.0))
}

async fn step(job: Step, cx: Context) -> Result<String, Failure> {
    let paid = cx.results::<String>().await?.join("");
    Ok(format!("{} because {paid}", job.0))
}

async fn close(job: Close, cx: Context) -> Result<String, Failure> {
    Ok(format!("order {} closed: {}", job.0, cx.results::<String>().await?.join(", ")))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> windlass::Result<()> {
    let client = Client::in_memory();
    let mut flow = Workflow::new("order-42");
    let paid = flow.add(Charge(42));
    let packed = flow.after([paid], Step("packed".to_owned()));
    let receipt = flow.after([paid], Step("receipt sent".to_owned()));
    let closed = flow.after([packed, receipt], Close(42));
    let started = client.start(flow).await?;

    let running = Worker::new(&client).queue("default", 4).handle(charge).handle(step).handle(close).start().await?;
    let ended = client.wait(started.job(closed)).await?;
    println!("{}", ended.result.expect("close returns one").decode::<String>()?);
    println!("{:?}", client.workflow(started.id).await?.state());
    running.stop().await;
    Ok(())
}
