//! The HTTP API alone, on a memory store and a free port of the loopback: `cargo run -p windlass-server --example api`.
//!
//! Prints its URL. There is no guard and no upkeep; `windlass run` is the server.

use tokio::net::TcpListener;
use windlass::Client;
use windlass_server::api::{self, ApiState};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, api::router(ApiState::new(Client::in_memory()))).await
}
