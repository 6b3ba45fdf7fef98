//! `powercontext-controller`: role `background`, which processes Topics and serves no API.
//!
//! Only wiring: the command line is here, the two health checks in `health`. Several controllers may
//! run over one database; they elect one leader. Exit status 0 after a clean stop, 2 for a mistake
//! in the configuration, 1 for anything else.

mod health;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use powercontext_core::ambient::SystemClock;
use powercontext_inference::GenerationConfig;
use powercontext_program::processing::Plan;
use powercontext_program::serving::{Serving, listen, until_signal};
use powercontext_program::{
    Arguments, Bounds, Failure, Processing, Signals, arguments, failure, print, start,
};
use powercontext_settings::{Role, Settings, SettingsError, settings_help};
use powercontext_worker::wiring::{self, TopicModel};

use health::Health;

const NAME: &str = "powercontext-controller";
/// Health checks come from one kubelet or load balancer and a few people.
const BOUNDS: Bounds = Bounds { max_connections: 64, header_time: Duration::from_secs(10) };

fn main() -> ExitCode {
    failure::exit(NAME, run())
}

fn run() -> Result<ExitCode, Failure> {
    let help = help();
    let matches = match Arguments::of_process(command(), &help)? {
        Arguments::Show(text) => return print(&text).map(|()| ExitCode::SUCCESS),
        Arguments::Run(matches) => matches,
    };
    let launcher = launcher(&matches)?;
    let settings = start::settings(&arguments::inputs(&matches)?, role)?;
    settings.check_schedule().map_err(Failure::configuration)?;
    start::tell(&settings);
    start::run(control(&settings, launcher)).map(|()| ExitCode::SUCCESS)
}

/// Where workers run.
#[derive(Clone, Copy, Debug)]
enum LauncherKind {
    /// As child processes of this one.
    Process,
}

fn launcher(matches: &ArgMatches) -> Result<LauncherKind, Failure> {
    match matches.get_one::<String>("launcher").map(String::as_str) {
        None | Some("process") => Ok(LauncherKind::Process),
        Some(other) => {
            let short: String = other.chars().take(60).collect();
            Err(Failure::Configuration(format!("--launcher must be process, not {short:?}")))
        }
    }
}

/// The role of this program, unless the settings ask for another one.
fn role(settings: &Settings) -> Result<Role, Failure> {
    match settings.chosen_role() {
        None | Some(Role::Background) => Ok(Role::Background),
        Some(role @ (Role::All | Role::Api)) => {
            let problem = format!(
                "asks for role `{}` of powercontext-api-server; this program is `background`",
                role.as_str()
            );
            Err(Failure::configuration(settings.refuse("runtime", "artifact_processing_role", problem)))
        }
    }
}

/// The model of Topic processing; without one that it supports this program would have nothing to do.
fn model(settings: &Settings) -> Result<GenerationConfig, Failure> {
    let refused = match wiring::topic_model(settings).map_err(Failure::configuration)? {
        TopicModel::Supported(config) => return Ok(config),
        TopicModel::Unsupported(refused) => refused,
        TopicModel::Unset => SettingsError::Missing {
            names: "`inference.generation_model` (POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL)".to_owned(),
            problem: "without a model there are no Topics to process".to_owned(),
        },
    };
    Err(Failure::configuration(refused))
}

/// Runs until a signal asks to stop.
async fn control(settings: &Settings, launcher: LauncherKind) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let options = start::store_options(settings)?;
    let plan = Plan::new(settings, &model(settings)?, &options.url)?;
    let opening = async { Ok((start::open(&options).await?, listen(&settings.http).await?)) };
    let Some((store, listener)) = start::unless_stopped(&mut signals, opening).await? else { return Ok(()) };
    let processing = Arc::new(match launcher {
        LauncherKind::Process => Processing::start(plan, &store),
    });
    let health = Health::new(store.clone(), Arc::new(SystemClock::start()), Arc::clone(&processing));
    let serving = Serving {
        http: &settings.http,
        listener,
        router: health::router(health.clone()),
        bounds: BOUNDS,
        store,
        processing: Some(processing),
    };
    until_signal(serving, || health.start_draining(), &mut signals).await
}

fn help() -> String {
    format!(
        "PowerContext Fleet: processes the Topics of a shared database; several may run, one leads.\n\n\
         Usage: {NAME} [--launcher process] [SETTINGS]\n\n\
         The database must be OceanBase and migrated before (powercontext-api-server migrate).\n\
         HTTP has /health/live and /health/ready alone. SIGTERM ends it after its workers.\n\n\
         Options:\n  \
         --launcher process\n      Where workers run: as child processes of this program (default).\n  \
         -h, --help     This text.\n  \
         -V, --version  The version.\n\n{}",
        settings_help()
    )
}

fn command() -> Command {
    let launcher = Arg::new("launcher").long("launcher").num_args(1);
    Command::new(NAME).version(env!("CARGO_PKG_VERSION")).arg(launcher)
}
