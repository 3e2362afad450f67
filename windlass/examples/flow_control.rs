//! Limits, rates, fair turns and order between the jobs of tenants, and one job for a burst of calls.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::flow::{AfterFailure, Control, Limit, Rate};
use windlass::job::{HoldScope, Unique};
use windlass::{Client, Context, Failure, Job, Worker};

#[derive(Serialize, Deserialize)]
struct SendMail {
    to: String,
}

impl Job for SendMail {
    const TYPE: &'static str = "mail.send";
}

async fn send(mail: SendMail, cx: Context) -> Result<(), Failure> {
    // What another service says for certain, with 429 and `Retry-After`: nothing more of this tenant for a minute.
    if mail.to == "busy" && cx.attempt() == 1 {
        let minute = Duration::from_secs(60);
        return Err(Failure::temporary("429").retry_after(minute).hold(HoldScope::Key, minute));
    }
    println!("to {}", mail.to);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> windlass::Result<()> {
    let (client, clock) = Client::for_tests();
    let mail = client.queue("mail")?;
    let control = Control::new().running(50).rate(Rate::per_second(100).burst(20));
    mail.control(control.each_key(Limit::running(3)).fair()).await?;
    mail.limit_key("acme", Limit::running(10).weight(5)).await?;
    client.queue("accounts")?.control(Control::new().ordered(AfterFailure::Halt)).await?;

    let worker = Worker::new(&client).queue("mail", 1).queue("accounts", 1).handle(send);
    let to = |to: &str| SendMail { to: to.to_owned() };
    client.enqueue(to("busy")).queue("mail").key("acme").await?;
    let held = client.enqueue(to("ada")).queue("mail").key("acme").await?;
    client.enqueue(to("grace")).queue("mail").key("other").await?;
    worker.drain().await?;
    println!("{}", client.explain(held.id).await?.reasons[0]);
    clock.advance(Duration::from_secs(60));
    worker.drain().await?;

    let (quiet, at_most) = (Duration::from_secs(30), Duration::from_secs(300));
    for _ in 0..3 {
        client.enqueue(to("once")).unique(Unique::pointers(["/to"])).queue("accounts").debounce(quiet, at_most).await?;
    }
    clock.advance(quiet);
    println!("{} of three", worker.drain().await?.completed);
    Ok(())
}
