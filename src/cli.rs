//! The command line: commands, and every configuration key as a flag.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use chrono::TimeDelta;
use clap::{Arg, ArgGroup, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use crier_common::config::{ConfigSource, duration, keys};
use crier_common::domain::access::{KeyMode, Role, Scopes};
use crier_common::domain::job::{JobKind, JobState};
use secrecy::SecretString;

mod bench;
mod connect;

pub use bench::{
    AnalyticsMeasurement, BenchAnalytics, BenchCommand, BenchCost, BenchInbox, BenchJobs, BenchMedia, BenchOptions,
    BenchPages, BenchReports, BenchWebhooks, CostMeasurement, InboxMeasurement, Measurement, MediaMeasurement,
    PagesMeasurement, WebhookMeasurement,
};
pub use connect::{AccountCommand, AppCommand, ConnectAccount, SetApp};

/// Publishes posts to social platforms, on your own machine.
#[derive(Parser, Debug)]
#[command(
    name = "crier",
    version,
    after_help = concat!(
        "Examples:\n",
        "  crier                                  start everything, on SQLite in ./crier-data\n",
        "  crier user add ann@example.com         a user with a workspace of her own\n",
        "  crier key create --user ann@example.com\n",
        "  crier jobs list --state dead --json\n",
        "  crier webhooks listen                  show what webhooks bring, on a local port\n",
        "  crier bench jobs                       how fast the jobs are on this machine\n",
        "  crier bench webhooks                   and how fast the webhooks",
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
    /// Bring the database to this version; the first time, make a workspace and the user owner@localhost.
    Migrate,
    /// Users.
    #[command(subcommand)]
    User(UserCommand),
    /// Members of brands.
    #[command(subcommand)]
    Member(MemberCommand),
    /// API keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Social accounts.
    #[command(subcommand)]
    Account(AccountCommand),
    /// Applications that you registered at platforms.
    #[command(subcommand)]
    App(AppCommand),
    /// Plans: what workspaces may use.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Jobs: the work that waits, runs or died.
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Webhooks: try them out.
    #[command(subcommand)]
    Webhooks(WebhooksCommand),
    /// Measure this version on this machine, beside the installation and without touching it.
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Args, Debug, Clone, Copy)]
pub struct Format {
    /// Print JSON: an array of objects.
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum UserCommand {
    /// Add a user, in a workspace of its own unless one is named.
    #[command(after_help = "Example:\n  crier user add ann@example.com --name Ann --plan pro")]
    Add {
        email: String,
        #[arg(long)]
        name: Option<String>,
        /// The plan of the new workspace.
        #[arg(long)]
        plan: Option<String>,
        /// An existing workspace to join.
        #[arg(long, conflicts_with = "plan")]
        workspace: Option<i64>,
    },
    /// List users.
    List(Format),
    /// Delete a user with the keys and webhooks; what the user wrote stays.
    Delete { email: String },
}

#[derive(Subcommand, Debug)]
pub enum MemberCommand {
    /// Add a member to a brand, or change the role.
    #[command(after_help = "Example:\n  crier member add --brand 1 --user ann@example.com --role admin")]
    Add {
        #[arg(long)]
        brand: i64,
        #[arg(long)]
        user: String,
        /// owner, admin or editor.
        #[arg(long, default_value = "editor")]
        role: Role,
    },
    /// Take a member out of a brand.
    Remove {
        #[arg(long)]
        brand: i64,
        #[arg(long)]
        user: String,
    },
}

#[derive(Subcommand, Debug)]
pub enum KeyCommand {
    /// Make a key and print it; it cannot be shown again.
    #[command(after_help = "Example:\n  crier key create --user owner@localhost --scopes posts:read,posts:write")]
    Create {
        #[arg(long)]
        user: String,
        /// live or test.
        #[arg(long, default_value = "live")]
        mode: KeyMode,
        /// all, or a list separated by commas.
        #[arg(long, default_value = "all")]
        scopes: Scopes,
    },
    /// List keys (never the keys themselves).
    List(Format),
    /// Delete a key; it stops working at once.
    Delete { id: i64 },
}

#[derive(Subcommand, Debug)]
pub enum PlanCommand {
    /// List the plans of this installation.
    List(Format),
    /// Put the workspace of a user on a plan.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier plan set --user ann@example.com pro\n",
            "  crier plan set --user ann@example.com pro --timezone Europe/Berlin",
        )
    )]
    Set {
        #[arg(long)]
        user: String,
        plan: String,
        /// Where the months of the AI credits begin; as it was where it is not given, UTC at first.
        #[arg(long, value_name = "ZONE", value_parser = timezone)]
        timezone: Option<String>,
    },
    /// What is used of the caps, by workspace.
    Usage {
        /// Only the workspace of this user.
        #[arg(long)]
        user: Option<String>,
        /// The AI credits of this month, by brand and operation.
        #[arg(long)]
        brands: bool,
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Subcommand, Debug)]
pub enum JobsCommand {
    /// List jobs, newest first.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier jobs list --state dead\n",
            "  crier jobs list --kind deliver_webhook --lane endpoint:7 --older-than 15m\n",
            "  crier jobs list --kind publish_target --state dead --json",
        )
    )]
    List {
        #[command(flatten)]
        which: JobFilter,
        #[arg(long)]
        state: Option<JobState>,
        /// So many at most.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
        #[command(flatten)]
        format: Format,
    },
    /// Show all that is known of one job: its lane, what it acts on, every try, its last error.
    #[command(after_help = "Example:\n  crier jobs show 42")]
    Show {
        id: i64,
        /// Print JSON: one object.
        #[arg(long)]
        json: bool,
    },
    /// How many jobs of each kind stand where.
    #[command(after_help = "Example:\n  crier jobs kinds --json")]
    Kinds(Format),
    /// Run dead or cancelled jobs again, with all their attempts; what they act on is told.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier jobs retry 42 43\n",
            "  crier jobs retry --dead --kind publish_target\n",
            "  crier jobs retry --dead --kind deliver_webhook --lane endpoint:7 --older-than 2h",
        )
    )]
    Retry {
        /// Of the jobs.
        #[arg(required_unless_present = "dead", conflicts_with_all = ["kind", "lane", "older_than"])]
        ids: Vec<i64>,
        /// All dead jobs of a kind.
        #[arg(long, requires = "kind", conflicts_with = "ids")]
        dead: bool,
        #[command(flatten)]
        which: JobFilter,
    },
    /// Cancel jobs that have not begun; what they act on is told.
    #[command(
        group(ArgGroup::new("cancelled").args(["ids", "kind", "lane", "older_than"]).required(true).multiple(true)),
        after_help = concat!(
            "Examples:\n",
            "  crier jobs cancel 44 45\n",
            "  crier jobs cancel --kind deliver_webhook --state scheduled --lane endpoint:7\n\n",
            "Without ids it takes a --kind, a --lane or an --older-than: all jobs of all kinds are never cancelled at \
             once.",
        )
    )]
    Cancel {
        /// Of the jobs.
        #[arg(conflicts_with_all = ["kind", "lane", "older_than"])]
        ids: Vec<i64>,
        #[command(flatten)]
        which: JobFilter,
        /// scheduled or ready; both where it is not given.
        #[arg(long, value_parser = parse_unstarted_state, conflicts_with = "ids")]
        state: Option<JobState>,
    },
    /// Claim no more jobs of a kind; what runs goes on.
    #[command(after_help = "Example:\n  crier jobs pause publish_target")]
    Pause { kind: JobKind },
    /// Claim jobs of a kind again.
    #[command(after_help = "Example:\n  crier jobs resume publish_target")]
    Resume { kind: JobKind },
}

#[derive(Subcommand, Debug)]
pub enum WebhooksCommand {
    /// Take deliveries on a local port and show each, until Ctrl-C. It needs no installation here.
    #[command(
        after_help = concat!(
            "Crier delivers to public https addresses alone, unless it was started with \
             CRIER_ALLOWED_PRIVATE_NETWORKS=127.0.0.0/8. docs/webhooks.md says what a receiver does.\n\n",
            "Examples:\n",
            "  crier webhooks listen\n",
            "  crier webhooks listen --secret whsec_…             check the signatures\n",
            "  crier webhooks listen --status 503                 see deliveries being tried again\n",
            "  crier webhooks listen --count 1 --json | jq -r .body",
        )
    )]
    Listen(ListenWebhooks),
}

#[derive(Args, Debug, Clone)]
pub struct ListenWebhooks {
    /// 0 for any that is free.
    #[arg(long, default_value_t = 9999)]
    pub port: u16,
    /// Where to listen; whoever reaches it is shown.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub addr: IpAddr,
    /// The endpoint's secret, to check the signatures; what is wrong is shown, and answered as all else.
    #[arg(long, value_name = "whsec_…", value_parser = webhook_secret)]
    pub secret: Option<SecretString>,
    /// What to answer.
    #[arg(long, default_value_t = 204, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub status: u16,
    /// Print JSON: one object a line. Bytes of a body that are no UTF-8 are shown as U+FFFD.
    #[arg(long)]
    pub json: bool,
    /// End after so many requests.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// What narrows a command to some of the jobs.
#[derive(Args, Debug, Clone)]
pub struct JobFilter {
    #[arg(long)]
    pub kind: Option<JobKind>,
    /// account:1, endpoint:2, brand:3.
    #[arg(long)]
    pub lane: Option<String>,
    /// Made longer ago than this: 90s, 15m, 2h, 7d.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub older_than: Option<TimeDelta>,
}

fn age(text: &str) -> Result<TimeDelta, String> {
    let age = duration(text, Duration::ZERO, Duration::from_secs(3_650 * 86_400))?;
    TimeDelta::from_std(age).map_err(|error| error.to_string())
}

fn timezone(name: &str) -> Result<String, String> {
    let zone = name.parse::<chrono_tz::Tz>().map_err(|_| "it must be an IANA name such as Europe/Berlin")?;
    Ok(zone.name().to_owned())
}

fn webhook_secret(text: &str) -> Result<SecretString, String> {
    match text.starts_with("whsec_") {
        true => Ok(SecretString::from(text)),
        false => Err("a secret begins with whsec_, and the whole text is the key".to_owned()),
    }
}

fn parse_unstarted_state(word: &str) -> Result<JobState, String> {
    match word.parse() {
        Ok(state @ (JobState::Scheduled | JobState::Ready)) => Ok(state),
        Ok(state) => Err(format!("a job that is {state} cannot be cancelled; it must be one of: scheduled, ready")),
        Err(_) => Err("it must be one of: scheduled, ready".to_owned()),
    }
}

/// Parses the command line. Exits on `--help`, `--version` or an error (status 2).
pub fn parse() -> (Option<Command>, ConfigSource) {
    let all = keys::all();
    let fixed: Vec<String> = keys::fixed().map(keys::Key::flag).collect();
    let mut command = Cli::command().arg(
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .global(true)
            .help("The file to read in place of crier.toml"),
    );
    for key in &all {
        let flag = key.flag();
        // Platform keys work and are in the README, but there are too many of them for the help.
        let hidden = !fixed.contains(&flag);
        let help = format!("{} [{}: {}]", key.meaning, key.variable(), key.default_text());
        command = command.arg(
            Arg::new(flag.clone())
                .long(flag)
                .value_name("VALUE")
                .global(true)
                .hide(hidden)
                .hide_short_help(true)
                .help(help)
                .help_heading("Configuration"),
        );
    }
    let matches = command.get_matches();
    let mut deepest = &matches;
    while let Some((_, sub)) = deepest.subcommand() {
        deepest = sub;
    }
    let flags = all
        .iter()
        .filter_map(|key| Some((key.flag(), deepest.get_one::<String>(&key.flag())?.clone())))
        .collect::<Vec<_>>();
    let config = deepest.get_one::<String>("config").map(PathBuf::from);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    (cli.command, ConfigSource::of_process(config.as_deref(), flags))
}
