//! The command line: commands, and every configuration key as a flag.
//!
//! **To add a command:** its variant here, its file in `commands/`, and its arm in `commands::dispatch`. The doc comments
//! of variants and fields are the texts of `--help`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Arg, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use crier_config::{ConfigSource, keys};
use crier_domain::access::{KeyMode, KeyName, Role, Scopes};
use secrecy::SecretString;

mod backup;
mod connect;
mod jobs;
mod post;

pub use backup::{Overdue, ResumeArgs};
pub use connect::{AccountCommand, AppCommand, ConnectAccount, SetApp};
pub use jobs::{JobFilter, JobsCommand};
pub use post::{ListPosts, PostCommand};

/// Publishes posts to social platforms, on your own machine.
#[derive(Parser, Debug)]
#[command(
    name = "crier",
    version,
    after_help = concat!(
        "Examples:\n",
        "  crier                                  start everything, on SQLite in ./crier-data\n",
        "  crier doctor                           check everything that this installation depends on\n",
        "  crier user add ann@example.com         add a user with a new workspace\n",
        "  crier login --user ann@example.com     print a sign-in link for the console\n",
        "  crier key create --user ann@example.com\n",
        "  crier post list --status failed        list failed posts with their errors\n",
        "  crier webhooks listen                  receive webhook deliveries on a local port\n",
        "  crier help config                      list the configuration keys; each is also a flag",
    )
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the API, the worker and the scheduler in this process (the default).
    Serve,
    /// Migrate the database; if it is empty, also create the user owner@localhost.
    Migrate,
    /// Check everything that this installation depends on; exit with status 1 if a check fails.
    #[command(after_help = "Examples:\n  crier doctor\n  crier doctor --json | jq '.[] | select(.status != \"ok\")'")]
    Doctor(Format),
    /// Back up an embedded installation to a file while it runs.
    #[command(after_help = "Examples:\n  crier backup crier-monday.tar\n  crier backup - | gzip > crier.tar.gz")]
    Backup {
        /// The path of the new file, or - for stdout.
        file: PathBuf,
    },
    /// Restore an installation from a backup; publishing is held until `crier resume`.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier restore crier-monday.tar\n",
            "  crier restore crier-monday.tar --data-dir ./other\n",
            "  gunzip -c crier.tar.gz | crier restore -",
        )
    )]
    Restore {
        /// The backup file, or - for stdin.
        file: PathBuf,
    },
    /// Resume publishing after a restore, once you have reviewed what is overdue.
    #[command(after_help = "Examples:\n  crier resume\n  crier resume --overdue cancel")]
    Resume(ResumeArgs),
    /// Manage the storage of the media library.
    #[command(subcommand)]
    Storage(StorageCommand),
    /// Manage users.
    #[command(subcommand)]
    User(UserCommand),
    /// List and delete brands.
    #[command(subcommand)]
    Brand(BrandCommand),
    /// Delete workspaces.
    #[command(subcommand)]
    Workspace(WorkspaceCommand),
    /// Manage brand members.
    #[command(subcommand)]
    Member(MemberCommand),
    /// Print a single-use link that signs a user in to the console.
    #[command(after_help = "Example:\n  crier login --user owner@localhost")]
    Login {
        /// The user's email address.
        #[arg(long)]
        user: String,
    },
    /// Manage API keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// List and connect social accounts.
    #[command(subcommand)]
    Account(AccountCommand),
    /// Manage applications that you registered with platforms.
    #[command(subcommand)]
    App(AppCommand),
    /// List plans, set the plan of a workspace, and show usage.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// List, show and retry posts.
    #[command(subcommand)]
    Post(PostCommand),
    /// Manage background jobs.
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Test webhooks.
    #[command(subcommand)]
    Webhooks(WebhooksCommand),
    /// List every configuration key with its default.
    Config,
    /// Print a shell completion script.
    #[command(after_help = "Example:\n  crier completions bash > /etc/bash_completion.d/crier")]
    Completions {
        /// The shell: bash, zsh, fish, elvish or powershell.
        shell: Shell,
    },
    /// Write the manual pages to a directory.
    #[command(after_help = "Example:\n  crier man /usr/local/share/man/man1")]
    Man {
        /// The directory to write to; it must exist.
        dir: PathBuf,
    },
}

#[derive(Args, Debug, Clone, Copy)]
pub struct Format {
    /// Print JSON: an array of objects.
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum StorageCommand {
    /// Use the directory of CRIER_STORAGE_URL as the storage, after you have moved all files there.
    #[command(after_help = "Example:\n  crier storage adopt --storage-url file:///srv/crier/files")]
    Adopt,
}

#[derive(Subcommand, Debug)]
pub enum UserCommand {
    /// Add a user, in a new workspace unless --workspace is given.
    #[command(after_help = "Example:\n  crier user add ann@example.com --name Ann --plan pro")]
    Add {
        /// The user's email address.
        email: String,
        /// The user's display name. Default: the part of the address before the @.
        #[arg(long)]
        name: Option<String>,
        /// The plan of the new workspace, from `crier plan list`. Default: unlimited.
        #[arg(long)]
        plan: Option<String>,
        /// The ID of an existing workspace to join, from `crier user list`.
        #[arg(long, conflicts_with = "plan")]
        workspace: Option<i64>,
    },
    /// List users.
    List(Format),
    /// Delete a user with their keys and webhooks; the content that they created is kept.
    Delete {
        /// The user's email address.
        email: String,
    },
    /// Manage operators: users who administer this installation in the console.
    #[command(subcommand)]
    Operator(OperatorCommand),
}

#[derive(Subcommand, Debug)]
pub enum OperatorCommand {
    /// Make a user an operator.
    #[command(after_help = "Example:\n  crier user operator add ann@example.com")]
    Add {
        /// The user's email address.
        email: String,
    },
    /// Remove a user from the operators; the last operator cannot be removed.
    #[command(after_help = "Example:\n  crier user operator remove ann@example.com")]
    Remove {
        /// The user's email address.
        email: String,
    },
    /// List operators.
    List(Format),
    /// List when users became operators and stopped being operators.
    History(Format),
}

#[derive(Subcommand, Debug)]
pub enum BrandCommand {
    /// List the brands of all workspaces with their IDs.
    List(Format),
    /// Delete a brand with its posts, files and all other data.
    #[command(
        after_help = concat!(
            "The brand stops publishing immediately. If the command is interrupted, run it again to continue.\n\n",
            "Examples:\n",
            "  crier brand delete 17\n",
            "  crier brand delete 17 --yes --json",
        )
    )]
    Delete {
        /// The brand ID, from `crier brand list`.
        id: i64,
        #[command(flatten)]
        options: DeleteOptions,
    },
}

#[derive(Subcommand, Debug)]
pub enum WorkspaceCommand {
    /// Delete a workspace with its brands, its users and all other data.
    #[command(
        after_help = concat!(
            "The brands stop publishing immediately. If the command is interrupted, run it again to continue.\n\n",
            "Examples:\n",
            "  crier workspace delete 7\n",
            "  crier workspace delete 7 --yes --json",
        )
    )]
    Delete {
        /// The workspace ID, from `crier user list`.
        id: i64,
        #[command(flatten)]
        options: DeleteOptions,
    },
}

#[derive(Args, Debug, Clone, Copy)]
pub struct DeleteOptions {
    /// Delete without asking.
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Subcommand, Debug)]
pub enum MemberCommand {
    /// Add a member to a brand, or change the member's role.
    #[command(after_help = "Example:\n  crier member add --brand 1 --user ann@example.com --role admin")]
    Add {
        /// The brand ID, from `crier brand list`.
        #[arg(long)]
        brand: i64,
        /// The user's email address.
        #[arg(long)]
        user: String,
        /// The role: owner, admin, editor or contributor.
        #[arg(long, default_value = "editor")]
        role: Role,
    },
    /// Remove a member from a brand.
    Remove {
        /// The brand ID, from `crier brand list`.
        #[arg(long)]
        brand: i64,
        /// The user's email address.
        #[arg(long)]
        user: String,
    },
}

#[derive(Subcommand, Debug)]
pub enum KeyCommand {
    /// Create a key and print it; it cannot be shown again.
    #[command(after_help = "Example:\n  crier key create --user owner@localhost --scopes posts:read,posts:write")]
    Create {
        /// The email address of the user that the key acts for.
        #[arg(long)]
        user: String,
        /// The mode: live or test.
        #[arg(long, default_value = "live")]
        mode: KeyMode,
        /// The scopes: all, or a comma-separated list.
        #[arg(long, default_value = "all")]
        scopes: Scopes,
        /// The name by which the user recognizes the key, such as that of the program that uses it.
        #[arg(long)]
        name: Option<KeyName>,
    },
    /// List keys; only their first and last characters are shown.
    List(Format),
    /// Delete a key; it stops working immediately.
    Delete {
        /// The key ID, from `crier key list`.
        id: i64,
    },
}

#[derive(Subcommand, Debug)]
pub enum PlanCommand {
    /// List the plans of this installation; - means unlimited.
    List(Format),
    /// Set the plan of a user's workspace.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier plan set --user ann@example.com pro\n",
            "  crier plan set --user ann@example.com pro --timezone Europe/Berlin",
        )
    )]
    Set {
        /// The email address of a user in the workspace.
        #[arg(long)]
        user: String,
        /// The plan name, from `crier plan list`.
        plan: String,
        /// The time zone for monthly AI credits. Default: the current one, initially UTC.
        #[arg(long, value_name = "ZONE", value_parser = parse_time_zone)]
        timezone: Option<String>,
    },
    /// Show usage and limits by workspace; - means unlimited.
    Usage {
        /// The email address of the user whose workspace to show. Default: all workspaces.
        #[arg(long)]
        user: Option<String>,
        /// Show the AI credits of this month, by brand and operation.
        #[arg(long)]
        brands: bool,
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Subcommand, Debug)]
pub enum WebhooksCommand {
    /// Receive deliveries on a local port and print each, until Ctrl-C. Requires no installation.
    #[command(
        after_help = concat!(
            "Crier delivers only to public https URLs, unless it was started with \
             CRIER_ALLOWED_PRIVATE_NETWORKS=127.0.0.0/8. docs/webhooks.md describes what a receiver must do.\n\n",
            "Examples:\n",
            "  crier webhooks listen\n",
            "  crier webhooks listen --secret whsec_…             check the signatures\n",
            "  crier webhooks listen --status 503                 see deliveries being retried\n",
            "  crier webhooks listen --count 1 --json | jq -r .body",
        )
    )]
    Listen(ListenWebhooks),
}

#[derive(Args, Debug, Clone)]
pub struct ListenWebhooks {
    /// The port to listen on; 0 for any free port.
    #[arg(long, default_value_t = 9999)]
    pub port: u16,
    /// The IP address to listen on; every request that it receives is printed.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub addr: IpAddr,
    /// The endpoint's secret, to check signatures. Invalid signatures are reported; the response stays the same.
    #[arg(long, value_name = "whsec_…", value_parser = parse_webhook_secret)]
    pub secret: Option<SecretString>,
    /// The status of the responses.
    #[arg(long, default_value_t = 204, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub status: u16,
    /// Print JSON: one object per line. Bytes of a body that are not UTF-8 are shown as U+FFFD.
    #[arg(long)]
    pub json: bool,
    /// The number of requests after which to exit.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

fn parse_time_zone(name: &str) -> Result<String, String> {
    let zone = name.parse::<chrono_tz::Tz>().map_err(|_| "it must be an IANA name such as Europe/Berlin")?;
    Ok(zone.name().to_owned())
}

fn parse_webhook_secret(text: &str) -> Result<SecretString, String> {
    match text.starts_with("whsec_") {
        true => Ok(SecretString::from(text)),
        false => Err("it must begin with whsec_; the prefix is part of the secret".to_owned()),
    }
}

/// Returns the commands with their own arguments.
pub fn commands() -> clap::Command {
    let config = Arg::new("config").long("config").value_name("FILE").global(true);
    Cli::command()
        .mut_subcommand("config", |config| config.after_help(keys::help()))
        .arg(config.help("The file to read instead of crier.toml"))
}

/// Returns the definition of the command line: the commands, and every configuration key as a flag of each.
fn definition() -> clap::Command {
    keys::all().into_iter().fold(commands(), |command, key| {
        let help = format!("{} [{}: {}]", key.description, key.variable(), key.default_text());
        // Only `crier help config` lists them. In each help they would bury the arguments of the command.
        let flag = key.flag();
        command.arg(Arg::new(flag.clone()).long(flag).value_name("VALUE").global(true).hide(true).help(help))
    })
}

/// Parses the command line. Exits on `--help`, `--version` or an error (status 2).
pub fn parse() -> (Option<Command>, ConfigSource) {
    let matches = definition().get_matches();
    let mut deepest = &matches;
    while let Some((_, sub)) = deepest.subcommand() {
        deepest = sub;
    }
    let flags = keys::all()
        .iter()
        .filter_map(|key| Some((key.flag(), deepest.get_one::<String>(&key.flag())?.clone())))
        .collect::<Vec<_>>();
    let config = deepest.get_one::<String>("config").map(PathBuf::from);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    (cli.command, ConfigSource::of_process(config.as_deref(), flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(command: &clap::Command, check: &impl Fn(&clap::Command)) {
        check(command);
        command.get_subcommands().for_each(|sub| visit(sub, check));
    }

    #[test]
    fn every_command_and_argument_has_a_help_text() {
        visit(&definition(), &|command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!((1..=100).contains(&about.len()), "{}: {about}", command.get_name());
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty(), "{} {}", command.get_name(), argument.get_id());
            }
        });
    }

    #[test]
    fn examples_are_commands_that_exist() {
        visit(&definition(), &|command| {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in examples.lines().filter_map(|line| line.trim().strip_prefix("crier ")) {
                let command_line = line.split("   ").next().unwrap_or_default();
                let words = command_line.split_whitespace().take_while(|word| !word.starts_with(['|', '<', '>']));
                let words: Vec<&str> = words.collect();
                if words.first() == Some(&"help") {
                    continue;
                }
                let parsed = definition().try_get_matches_from([&["crier"], words.as_slice()].concat());
                assert!(parsed.is_ok(), "{line}: {}", parsed.err().map(|error| error.to_string()).unwrap_or_default());
            }
        });
    }
}
