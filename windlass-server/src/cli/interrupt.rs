//! Ctrl-C, for commands that work in steps: the first one stops between two steps, the second one at once.

use tokio_util::sync::CancellationToken;

use super::exit::Exit;

/// Whether somebody pressed Ctrl-C.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(CancellationToken);

impl Interrupt {
    /// Listens from now on; until then Ctrl-C ends the process as usual.
    pub(crate) fn listen() -> Self {
        let token = CancellationToken::new();
        let pressed = token.clone();
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                if pressed.is_cancelled() {
                    std::process::exit(i32::from(Exit::Interrupted as u8));
                }
                pressed.cancel();
            }
        });
        Interrupt(token)
    }

    /// Whether it is time to stop.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until it is.
    pub(crate) async fn asked(&self) {
        self.0.cancelled().await;
    }
}
