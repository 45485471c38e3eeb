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
        /// The state: scheduled, ready, running, done, dead or cancelled.
        #[arg(long)]
        state: Option<JobState>,
        /// The maximum number of jobs.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
        #[command(flatten)]
        format: Format,
    },
    /// Show a job with its lane, subject, attempts and last error.
    #[command(after_help = "Example:\n  crier jobs show 42")]
    Show {
        /// The job ID.
        id: i64,
        /// Print JSON: one object.
        #[arg(long)]
        json: bool,
    },
    /// Count jobs by kind and state.
    #[command(after_help = "Example:\n  crier jobs kinds --json")]
    Kinds(Format),
    /// Retry dead or canceled jobs from the first attempt; their subjects are reset.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier jobs retry 42 43\n",
            "  crier jobs retry --dead --kind publish_target\n",
            "  crier jobs retry --dead --kind deliver_webhook --lane endpoint:7 --older-than 2h",
        )
    )]
    Retry {
        /// The job IDs.
        #[arg(required_unless_present = "dead", conflicts_with_all = ["kind", "lane", "older_than"])]
        ids: Vec<i64>,
        /// Retry all dead jobs of a kind.
        #[arg(long, requires = "kind", conflicts_with = "ids")]
        dead: bool,
        #[command(flatten)]
        which: JobFilter,
    },
    /// Cancel jobs that have not started; their subjects are marked as failed.
    #[command(
        group(ArgGroup::new("cancelled").args(["ids", "kind", "lane", "older_than"]).required(true).multiple(true)),
        after_help = concat!(
            "Examples:\n",
            "  crier jobs cancel 44 45\n",
            "  crier jobs cancel --kind deliver_webhook --state scheduled --lane endpoint:7\n\n",
            "Without IDs, --kind, --lane or --older-than is required: the command never cancels all jobs of all \
             kinds.",
        )
    )]
    Cancel {
        /// The job IDs.
        #[arg(conflicts_with_all = ["kind", "lane", "older_than"])]
        ids: Vec<i64>,
        #[command(flatten)]
        which: JobFilter,
        /// The state: scheduled or ready. Default: both.
        #[arg(long, value_parser = parse_unstarted_state, conflicts_with = "ids")]
        state: Option<JobState>,
    },
    /// Pause a kind of job; its running jobs finish.
    #[command(after_help = "Example:\n  crier jobs pause publish_target")]
    Pause {
        /// The kind, from `crier jobs kinds`.
        kind: JobKind,
    },
    /// Resume a kind of job.
    #[command(after_help = "Example:\n  crier jobs resume publish_target")]
    Resume {
        /// The kind, from `crier jobs kinds`.
        kind: JobKind,
    },
}

/// The filters that limit a command to some of the jobs.
#[derive(Args, Debug, Clone)]
pub struct JobFilter {
    /// The kind, from `crier jobs kinds`.
    #[arg(long)]
    pub kind: Option<JobKind>,
    /// The lane, such as account:1, endpoint:2 or brand:3.
    #[arg(long)]
    pub lane: Option<String>,
    /// The minimum age, such as 90s, 15m, 2h or 7d.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub older_than: Option<TimeDelta>,
}

fn parse_age(text: &str) -> Result<TimeDelta, String> {
    let age = duration(text, Duration::ZERO, Duration::from_secs(3_650 * 86_400))
        .map_err(|problem| format!("{problem}; use a value such as 90s, 15m, 2h or 7d"))?;
    TimeDelta::from_std(age).map_err(|error| error.to_string())
}

fn parse_unstarted_state(word: &str) -> Result<JobState, String> {
    match word.parse() {
        Ok(state @ (JobState::Scheduled | JobState::Ready)) => Ok(state),
        Ok(state) => Err(format!("a job that is {state} cannot be canceled; it must be one of: scheduled, ready")),
        Err(_) => Err("it must be one of: scheduled, ready".to_owned()),
    }
}
