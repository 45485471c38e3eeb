//! `crier resume`

use clap::{Args, ValueEnum};

#[derive(Args, Debug, Clone, Copy)]
pub struct ResumeArgs {
    /// What to do with what was due before now, and may have gone out after the backup was made.
    #[arg(long)]
    pub overdue: Option<Overdue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Overdue {
    /// Fail it: it is marked as cancelled by the operator.
    Cancel,
    /// Send it now.
    Publish,
}
