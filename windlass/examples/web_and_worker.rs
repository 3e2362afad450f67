//! A web application with axum and its worker in one process: requests enqueue jobs, and one signal stops both.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass::{Client, Context, Failure, Job, JobId, Worker};

#[derive(Serialize, Deserialize)]
struct Welcome {
    name: String,
}

impl Job for Welcome {
    const TYPE: &'static str = "welcome";
    const QUEUE: &'static str = "mail";
}

async fn send(job: Welcome, _cx: Context) -> Result<String, Failure> {
    Ok(format!("welcome, {}", job.name))
}

/// Answers as soon as the job is stored; the worker sends the mail.
async fn sign_up(State(client): State<Client>, Json(new): Json<Welcome>) -> Result<Json<JobId>, StatusCode> {
    let job = client.enqueue(new).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(Json(job.id))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::in_memory(); // For real work: Client::open("postgres://…"), or Client::with_pool on your own pool.
    let worker = Worker::new(&client).queue("mail", 4).handle(send).start().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/users", post(sign_up)).with_state(client.clone());
    // In a program, without `visitor`: .with_graceful_shutdown(windlass::worker::stop_signal()), for SIGINT and SIGTERM.
    let visitor = async move { visit(address, &client).await.expect("an answer") };
    axum::serve(listener, app).with_graceful_shutdown(visitor).await?;
    // First no more requests, then no more jobs: what the last request enqueued is safe in the store either way.
    println!("{} settled", worker.stop().await.settled);
    Ok(())
}

/// Somebody signs up, and waits for the mail.
async fn visit(address: std::net::SocketAddr, client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let request = "POST /users HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
                   Content-Length: 14\r\n\r\n{\"name\":\"Ada\"}";
    let (mut stream, mut answer) = (TcpStream::connect(address).await?, String::new());
    stream.write_all(request.as_bytes()).await?;
    stream.read_to_string(&mut answer).await?;
    let (head, id) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    let ended = client.wait(serde_json::from_str(id)?).await?;
    let result: String = ended.result.ok_or("no result")?.decode()?;
    println!("{}\n{}: {result}", head.lines().next().unwrap_or_default(), ended.state);
    Ok(())
}
