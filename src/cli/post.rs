//! `crier post`

use clap::{Args, Subcommand};
use crier_domain::post::PostStatus;

use super::Format;

#[derive(Subcommand, Debug)]
pub enum PostCommand {
    /// List posts of all brands, newest first.
    #[command(
        after_help = "Examples:\n  crier post list --status failed\n  crier post list --brand 1 --limit 20 --json"
    )]
    List(ListPosts),
    /// Show a post with its accounts, and what failed there.
    #[command(after_help = "Example:\n  crier post show 42")]
    Show {
        /// Of the post.
        id: i64,
        /// Print JSON: one object.
        #[arg(long)]
        json: bool,
    },
    /// Publish posts again on the accounts where they failed.
    #[command(after_help = "Examples:\n  crier post retry 42 43\n  crier post retry 42 --outcome-unknown")]
    Retry {
        /// Of the posts.
        #[arg(required = true)]
        ids: Vec<i64>,
        /// Also where the post may be out already, because the platform's answer was lost.
        #[arg(long)]
        outcome_unknown: bool,
    },
}

#[derive(Args, Debug, Clone)]
pub struct ListPosts {
    /// draft, pending_approval, scheduled, publishing, published, partially_published or failed.
    #[arg(long)]
    pub status: Option<PostStatus>,
    /// The id of a brand.
    #[arg(long)]
    pub brand: Option<i64>,
    /// So many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub format: Format,
}
