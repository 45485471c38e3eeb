//! `crier post`

use clap::{Args, Subcommand};
use crier_domain::post::PostStatus;

use super::Format;

#[derive(Subcommand, Debug)]
pub enum PostCommand {
    /// List posts of all brands, newest first; times are in UTC.
    #[command(
        after_help = "Examples:\n  crier post list --status failed\n  crier post list --brand 1 --limit 20 --json"
    )]
    List(ListPosts),
    /// Show a post with its accounts and their errors.
    #[command(after_help = "Example:\n  crier post show 42")]
    Show {
        /// The post ID.
        id: i64,
        /// Print JSON: one object.
        #[arg(long)]
        json: bool,
    },
    /// Retry posts on the accounts where they failed.
    #[command(after_help = "Examples:\n  crier post retry 42 43\n  crier post retry 42 --outcome-unknown")]
    Retry {
        /// The post IDs.
        #[arg(required = true)]
        ids: Vec<i64>,
        /// Also retry accounts where the post may already be published, because the platform's response was lost.
        #[arg(long)]
        outcome_unknown: bool,
    },
}

#[derive(Args, Debug, Clone)]
pub struct ListPosts {
    /// The status: draft, pending_approval, scheduled, publishing, published, partially_published or failed.
    #[arg(long)]
    pub status: Option<PostStatus>,
    /// The brand ID, from `crier brand list`.
    #[arg(long)]
    pub brand: Option<i64>,
    /// The maximum number of posts.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub format: Format,
}
