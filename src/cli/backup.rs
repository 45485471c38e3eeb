//! `crier resume`

use clap::{Args, ValueEnum};

#[derive(Args, Debug, Clone, Copy)]
pub struct ResumeArgs {
    /// The action for overdue posts, comments, deletions, replies and emails, which may have been completed already.
    #[arg(long)]
    pub overdue: Option<Overdue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Overdue {
    /// Mark them as failed, because the operator canceled them.
    Cancel,
    /// Start them now.
    Publish,
}
