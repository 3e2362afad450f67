//! A first job: enqueue it, run it, read its result.

use serde::{Deserialize, Serialize};
use windlass::{Client, Context, Failure, Job, Worker};

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Job for Greet {
    const TYPE: &'static str = "greet";
}

async fn greet(job: Greet, _cx: Context) -> Result<String, Failure> {
    Ok(format!("hello, {}", job.name))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> windlass::Result<()> {
    // For real work: Client::open("sqlite:jobs.db") or Client::open("postgres://…").
    let client = Client::in_memory();
    let running = Worker::new(&client).queue("default", 8).handle(greet).start().await?;

    let job = client.enqueue(Greet { name: "Ada".to_owned() }).await?;
    let ended = client.wait(job.id).await?;
    println!("{}: {}", ended.state, ended.result.expect("greet returns one").decode::<String>()?);

    running.stop().await;
    Ok(())
}
