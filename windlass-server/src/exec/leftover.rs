//! What a program left running that nobody waits for any more: found by the job in its environment.
//!
//! A program that starts a session of its own escapes the signals to its group, and a worker that is killed leaves its
//! program behind. The environment names the job and the attempt all the same. Only processes of the same user are found,
//! and where there is no `/proc`, none.

use rustix::process::{Pid, Signal, kill_process};

/// Kills every process with this in its environment; gives how many.
pub(super) fn kill(variable: &str, value: &str) -> usize {
    let wanted = format!("{variable}={value}");
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    let mut killed = 0;
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // Those of others cannot be read, and are not ours to kill.
        let Ok(environment) = std::fs::read(process.path().join("environ")) else { continue };
        if !environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes()) {
            continue;
        }
        if let Some(pid) = Pid::from_raw(pid) {
            killed += usize::from(kill_process(pid, Signal::KILL).is_ok());
        }
    }
    killed
}
