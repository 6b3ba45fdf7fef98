//! The program itself: what it refuses before it opens anything, its commands, and its roles.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod migrating;
mod refusals;
mod role_all;
mod role_api;
mod stopped_start;

use std::path::Path;
use std::process::Command;

/// What a program left behind.
#[derive(Debug)]
struct Ended {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// The line after the program's name at the end of its log.
    fn line(&self) -> &str {
        let last = self.stderr.trim_end().lines().last().unwrap_or_default();
        last.strip_prefix("powercontext-api-server: ").unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// Runs the program with settings of `POWERCONTEXT_SERVER_<name>` until it ends by itself.
fn run(home: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Ended {
    let output = program(home, arguments, settings).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Ended {
        status: output.status.code().expect("the program ends by itself"),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

fn program(home: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_powercontext-api-server"));
    command.args(arguments).env_clear().env("HOME", home);
    command.envs(settings.iter().map(|(name, value)| (format!("POWERCONTEXT_SERVER_{name}"), value)));
    command
}
