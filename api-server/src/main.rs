//! `powercontext-api-server`: serves HTTP and, in role `all`, processes Topics with child processes.
//!
//! Only wiring: what the command line asks for is here, a running server in `serve`, the schema in
//! `migrating`. Exit status 0 after a clean stop, 2 for a mistake in the configuration, 3 when
//! `migrate --check` found something to migrate, 1 for anything else.

mod migrating;
mod serve;

use std::os::unix::fs::DirBuilderExt as _;
use std::process::ExitCode;

use clap::{Arg, ArgAction, Command};
use powercontext_program::{Arguments, Failure, arguments, failure, print, start};
use powercontext_settings::{Inputs, Role, Settings, settings_help};

const NAME: &str = "powercontext-api-server";
/// The program of the role that serves no HTTP API.
const BACKGROUND_PROGRAM: &str = "powercontext-controller";

fn main() -> ExitCode {
    failure::exit(NAME, run())
}

fn run() -> Result<ExitCode, Failure> {
    let help = help();
    let matches = match Arguments::of_process(command(&help), &help)? {
        Arguments::Show(text) => return print(&text).map(|()| ExitCode::SUCCESS),
        Arguments::Run(matches) => matches,
    };
    let (name, given) = matches.subcommand().unwrap_or(("serve", &matches));
    if name == "help" {
        return print(&help).map(|()| ExitCode::SUCCESS);
    }
    let inputs = arguments::inputs(given)?;
    if name == "migrate" {
        return migrate(&inputs, given.get_flag("check"));
    }
    let settings = start::settings(&inputs, serving_role)?;
    settings.check_schedule().map_err(Failure::configuration)?;
    start::tell(&settings);
    make_default_folder(&settings)?;
    match settings.runtime.artifact_processing_role {
        Role::Api => start::run(serve::api(&settings)),
        Role::All | Role::Background => start::run(serve::all(&settings)),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// The schema belongs to no role, so the settings of any role will do.
fn migrate(inputs: &Inputs, only_check: bool) -> Result<ExitCode, Failure> {
    let settings = start::settings(inputs, |settings| Ok(settings.runtime.artifact_processing_role))?;
    if only_check {
        return start::run(migrating::check(&settings));
    }
    start::tell(&settings);
    make_default_folder(&settings)?;
    start::run(migrating::migrate(&settings)).map(|()| ExitCode::SUCCESS)
}

/// The role of this program when it serves; `background` is another program's.
fn serving_role(settings: &Settings) -> Result<Role, Failure> {
    match settings.runtime.artifact_processing_role {
        role @ (Role::All | Role::Api) => Ok(role),
        Role::Background => {
            let problem = format!("is for the program {BACKGROUND_PROGRAM}; this one has all and api");
            let refused = settings.refuse("runtime", "artifact_processing_role", problem);
            Err(Failure::configuration(refused))
        }
    }
}

fn help() -> String {
    format!(
        "PowerContext Fleet: long-lived, cited context for agents, over HTTP.\n\n\
         Usage: {NAME} [serve|migrate [--check]|help] [SETTINGS]\n\n\
         Commands:\n  \
         serve      Serve HTTP (default). Role all, the default, migrates the database first and\n             \
         processes Topics; role api only serves, over a database that was migrated before.\n  \
         migrate    Bring the database to the schema of this program, and end. With --check, change\n             \
         nothing and print the state of the schema: exit status 0 when it is current, 3 when\n             \
         migrations are pending, 1 or 2 for anything else.\n  \
         help       This text.\n\n\
         Topics of a shared database are also processed by {BACKGROUND_PROGRAM}.\n\n\
         Options:\n  \
         -h, --help     This text.\n  \
         -V, --version  The version.\n\n{}",
        settings_help()
    )
}

fn command(help: &str) -> Command {
    let part = |name: &'static str| Command::new(name).override_help(help.to_owned());
    let check = Arg::new("check").long("check").action(ArgAction::SetTrue);
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand(part("serve"))
        .subcommand(part("migrate").arg(check))
        .subcommand(part("help"))
}

fn make_default_folder(settings: &Settings) -> Result<(), Failure> {
    let Some(folder) = &settings.database.default_folder else { return Ok(()) };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        Failure::Environment(format!("the data folder {} cannot be made: {error}", folder.display()))
    })
}
