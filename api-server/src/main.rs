//! `powercontext-api-server`: serves HTTP and, in role `all`, processes Topics with child processes.
//!
//! Only wiring: arguments and settings here, the running server in `serve`, log lines in `logging`.
//! Exit status 0 after a clean stop, 2 for a mistake in the configuration, 1 for anything else.

mod logging;
mod serve;

use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::process::ExitCode;

use clap::Command;
use clap::error::ErrorKind;
use powercontext_core::ambient::SystemIds;
use powercontext_settings::{Inputs, Settings, command_line_error, settings_help, take_flags, with_flags};
use powercontext_worker::wiring;

const NAME: &str = "powercontext-api-server";

/// Why the program ends early; each prints as one line.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something in the configuration must be changed.
    #[error("{0}")]
    Configuration(String),
    /// Something outside does not work.
    #[error("{0}")]
    Environment(String),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let line = failure.to_string().replace('\n', " ");
            let _ = writeln!(std::io::stderr(), "{NAME}: {line}");
            ExitCode::from(match failure {
                Failure::Configuration(_) => 2,
                Failure::Environment(_) => 1,
            })
        }
    }
}

fn run() -> Result<(), Failure> {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return print(&error.to_string());
        }
        Err(error) => return Err(configuration(command_line_error(&error))),
    };
    let (name, arguments) = matches.subcommand().unwrap_or(("serve", &matches));
    if name == "help" {
        return print(&help());
    }
    let mut inputs = Inputs::from_process().map_err(configuration)?;
    take_flags(arguments, &mut inputs).map_err(configuration)?;
    let settings = Settings::load(&inputs).map_err(configuration)?;
    wiring::check(&settings).map_err(configuration)?;
    logging::start(&settings.log);
    logging::settings(&settings);
    make_default_folder(&settings)?;
    // Two threads carry thousands of requests a second and keep an idle server small.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::Environment(format!("the runtime cannot be started: {error}")))?;
    match name {
        "migrate" => runtime.block_on(migrate(&settings)),
        _ => runtime.block_on(serve::all(&settings)),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let written = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
    written.map_err(|error| Failure::Environment(format!("the text cannot be written: {error}")))
}

fn configuration(error: impl std::fmt::Display) -> Failure {
    Failure::Configuration(error.to_string())
}

fn help() -> String {
    format!(
        "PowerContext Fleet: long-lived, cited context for agents, over HTTP.\n\n\
         Usage: {NAME} [serve|migrate|help] [SETTINGS]\n\n\
         Commands:\n  \
         serve      Serve HTTP and process Topics (default); migrates the database first.\n  \
         migrate    Bring the database to the schema of this program, and end.\n  \
         help       This text.\n\n\
         Options:\n  \
         -h, --help     This text.\n  \
         -V, --version  The version.\n\n{}",
        settings_help()
    )
}

fn command() -> Command {
    let help = help();
    let part = |name: &'static str| Command::new(name).override_help(help.clone());
    with_flags(
        Command::new(NAME)
            .version(env!("CARGO_PKG_VERSION"))
            .override_help(help.clone())
            .disable_help_subcommand(true)
            .subcommand(part("serve"))
            .subcommand(part("migrate"))
            .subcommand(part("help")),
    )
}

fn make_default_folder(settings: &Settings) -> Result<(), Failure> {
    let Some(folder) = &settings.database.default_folder else { return Ok(()) };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        Failure::Environment(format!("the data folder {} cannot be made: {error}", folder.display()))
    })
}

async fn migrate(settings: &Settings) -> Result<(), Failure> {
    let options = wiring::store_options(settings).map_err(configuration)?;
    let _claim = serve::claim(&options)?;
    serve::migrate(&options, &SystemIds).await
}
