//! The settings on the command line: flags, their short forms and the help text.
//!
//! The programs add their own subcommands; what the values mean is left to `load`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgMatches, Command};

use crate::load::{Inputs, SettingsError};
use crate::table::{CONFIG_FILE_VARIABLE, ROLE, ROLE_FLAG, SETTINGS, position};

/// Adds every settings flag and `--config` to a command, for its subcommands too.
#[must_use]
pub fn with_flags(command: Command) -> Command {
    let flag = |name: String| Arg::new(name.clone()).long(name).num_args(1).global(true);
    let flags = SETTINGS.iter().filter_map(|setting| setting.flag()).map(flag);
    command.arg(flag("config".to_owned())).arg(flag(ROLE_FLAG.to_owned())).args(flags)
}

/// Takes the settings flags out of parsed arguments and puts them into `inputs`.
///
/// # Errors
/// [`SettingsError::CommandLine`] when a setting is given in its long and its short form.
pub fn take_flags(matches: &ArgMatches, inputs: &mut Inputs) -> Result<(), SettingsError> {
    let given = |name: &str| matches.get_one::<String>(name).cloned();
    inputs.file = given("config").map(PathBuf::from);
    for setting in SETTINGS {
        let Some(flag) = setting.flag() else { continue };
        if let Some(value) = given(&flag) {
            inputs.flags.push((flag, value));
        }
    }
    if let (Some(role), Some(setting)) = (given(ROLE_FLAG), position(ROLE.0, ROLE.1)) {
        let Some(flag) = SETTINGS.get(setting).and_then(|setting| setting.flag()) else { return Ok(()) };
        if inputs.flags.iter().any(|(known, _)| *known == flag) {
            return Err(SettingsError::CommandLine(format!(
                "--{ROLE_FLAG} and --{flag} are the same setting"
            )));
        }
        inputs.flags.push((flag, role));
    }
    Ok(())
}

/// One line that says what is wrong with a command line.
#[must_use]
pub fn command_line_error(error: &clap::Error) -> SettingsError {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let nearest = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(flag)) => format!("; did you mean {flag}?"),
        Some(ContextValue::Strings(flags)) if !flags.is_empty() => {
            format!("; did you mean {}?", flags.join(" or "))
        }
        _ => String::new(),
    };
    SettingsError::CommandLine(format!("{line}{nearest}; see --help"))
}

/// The part of `--help` that lists every setting with its names and default.
#[must_use]
pub fn settings_help() -> String {
    let mut help = format!(
        "Settings (a flag wins over the environment, the environment over the file):\n  \
         --config FILE\n      A TOML file with one table per section, as in [http] port = 8000.\n      \
         environment {CONFIG_FILE_VARIABLE}\n"
    );
    let mut section = "";
    for setting in SETTINGS {
        if setting.section != section {
            section = setting.section;
            let _ = write!(help, "\n[{section}]\n");
        }
        let flag = setting.flag().map_or_else(
            || format!("{} (no flag: a command line can be read by others)", setting.key),
            |flag| format!("--{flag} VALUE"),
        );
        let default = setting.default.unwrap_or("unset");
        let _ = write!(
            help,
            "  {flag}\n      {}\n      {}; default: {default}; environment {}\n",
            setting.help,
            setting.kind.rule(),
            setting.variable(),
        );
    }
    help
}
