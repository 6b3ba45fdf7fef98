//! The command line of a program: its own words, and the flags of the settings.

use std::io::Write as _;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};
use powercontext_settings::{Inputs, command_line_error, take_flags, with_flags};

use crate::Failure;

/// What the command line asks for.
#[derive(Debug)]
pub enum Arguments {
    /// To print this text and end.
    Show(String),
    /// To run.
    Run(ArgMatches),
}

impl Arguments {
    /// Reads the arguments of this process; `help` is the whole text of `--help`.
    ///
    /// # Errors
    /// [`Failure::Configuration`] for a command line that cannot be understood.
    pub fn of_process(command: Command, help: &str) -> Result<Self, Failure> {
        let command = with_flags(command.override_help(help.to_owned()).disable_help_subcommand(true));
        match command.try_get_matches() {
            Ok(matches) => Ok(Self::Run(matches)),
            Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
                Ok(Self::Show(error.to_string()))
            }
            Err(error) => Err(Failure::configuration(command_line_error(&error))),
        }
    }
}

/// The layers of the settings: the environment of this process, and the flags among `matches`.
///
/// # Errors
/// [`Failure::Configuration`].
pub fn inputs(matches: &ArgMatches) -> Result<Inputs, Failure> {
    let mut inputs = Inputs::from_process().map_err(Failure::configuration)?;
    take_flags(matches, &mut inputs).map_err(Failure::configuration)?;
    Ok(inputs)
}

/// Writes a text that was asked for to standard output.
///
/// # Errors
/// [`Failure::Environment`] when nobody takes it.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let written = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
    written.map_err(|error| Failure::Environment(format!("the text cannot be written: {error}")))
}
