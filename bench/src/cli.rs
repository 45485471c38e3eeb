//! The command line: a subcommand, and every configuration key as a flag, as in `crier`.

use std::path::PathBuf;

use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser};
use crier_config::{ConfigSource, keys};

use super::args::BenchCommand;

/// Benchmark this version on this machine, with temporary databases.
#[derive(Parser, Debug)]
#[command(
    name = "crier-bench",
    version,
    after_help = concat!(
        "By default, the benchmarks use SQLite and the in-process queue. If CRIER_DATABASE_URL is a Postgres URL and \
         CRIER_REDIS_URL is set, they create a database on that server (the user needs the privilege CREATEDB) and use \
         their own keys in Redis. Both are deleted at the end. Every configuration key is also a flag: \
         `crier help config` lists them.\n\n",
        "Examples:\n",
        "  crier-bench jobs\n",
        "  crier-bench jobs --database-url postgres://crier:password@localhost/crier --redis-url redis://localhost",
    )
)]
struct Cli {
    #[command(subcommand)]
    command: BenchCommand,
}

fn definition() -> clap::Command {
    let config = Arg::new("config").long("config").value_name("FILE").global(true);
    let command = Cli::command().arg(config.help("The file to read instead of crier.toml"));
    keys::all().into_iter().fold(command, |command, key| {
        let flag = key.flag();
        command.arg(Arg::new(flag.clone()).long(flag).value_name("VALUE").global(true).hide(true))
    })
}

/// Parses the command line. Exits on `--help`, `--version` or an error (status 2).
pub fn parse() -> (BenchCommand, ConfigSource) {
    let matches = definition().get_matches();
    let subcommand = matches.subcommand().map_or(&matches, |(_, subcommand)| subcommand);
    let flags = keys::all()
        .iter()
        .filter_map(|key| Some((key.flag(), subcommand.get_one::<String>(&key.flag())?.clone())))
        .collect::<Vec<_>>();
    let config = subcommand.get_one::<String>("config").map(PathBuf::from);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    (cli.command, ConfigSource::of_process(config.as_deref(), flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(command: &clap::Command, check: &impl Fn(&clap::Command)) {
        check(command);
        command.get_subcommands().for_each(|subcommand| visit(subcommand, check));
    }

    #[test]
    fn every_command_and_visible_argument_has_a_help_text() {
        visit(&definition(), &|command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!((1..=100).contains(&about.len()), "{}: {about}", command.get_name());
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty(), "{} {}", command.get_name(), argument.get_id());
            }
        });
    }

    #[test]
    fn examples_are_commands_that_exist() {
        visit(&definition(), &|command| {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in examples.lines().filter_map(|line| line.trim().strip_prefix("crier-bench ")) {
                let words = [&["crier-bench"], line.split_whitespace().collect::<Vec<_>>().as_slice()].concat();
                let parsed = definition().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.err().map(|error| error.to_string()).unwrap_or_default());
            }
        });
    }
}
