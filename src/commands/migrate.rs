//! `crier migrate`. All other commands need a current schema. For this one, [`super::run`] migrates it.

use super::{Context, Result};
use crate::first_start;
use crate::output::print_line;

pub async fn run(cx: &Context) -> Result {
    if first_start::migrate(&cx.store, &cx.config).await? {
        print_line(format_args!(
            "The database is ready, with the user {owner}. Next: crier key create --user {owner}",
            owner = first_start::OWNER
        ));
    } else {
        print_line("The database is up to date.");
    }
    Ok(())
}
