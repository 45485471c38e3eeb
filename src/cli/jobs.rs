//! `crier jobs`

use std::time::Duration;

use chrono::TimeDelta;
use clap::{ArgGroup, Args, Subcommand};
use crier_config::duration;
use crier_domain::job::{JobKind, JobState};

use super::Format;

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
        /// scheduled, ready, running, done, dead or cancelled.
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
        /// Of the job.
        id: i64,
        /// Print JSON: one object.
        #[arg(long)]
        json: bool,
    },
    /// How many jobs of each kind stand where.
    #[command(after_help = "Example:\n  crier jobs kinds --json")]
    Kinds(Format),
    /// Run dead or cancelled jobs again, with all their attempts; what they act on is reset.
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
    /// Cancel jobs that have not begun; what they act on is marked as failed.
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
    Pause {
        /// As `crier jobs kinds` shows it.
        kind: JobKind,
    },
    /// Claim jobs of a kind again.
    #[command(after_help = "Example:\n  crier jobs resume publish_target")]
    Resume {
        /// As `crier jobs kinds` shows it.
        kind: JobKind,
    },
}

/// What narrows a command to some of the jobs.
#[derive(Args, Debug, Clone)]
pub struct JobFilter {
    /// As `crier jobs kinds` shows it.
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

fn parse_unstarted_state(word: &str) -> Result<JobState, String> {
    match word.parse() {
        Ok(state @ (JobState::Scheduled | JobState::Ready)) => Ok(state),
        Ok(state) => Err(format!("a job that is {state} cannot be cancelled; it must be one of: scheduled, ready")),
        Err(_) => Err("it must be one of: scheduled, ready".to_owned()),
    }
}
