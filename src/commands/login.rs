//! `crier login`: prints a link that signs a user in to the console.

use crier_store::{sessions, users};
use secrecy::ExposeSecret;

use super::{Context, Result, fail};
use crate::output::print_line;

pub async fn run(cx: &Context, email: &str) -> Result {
    let mut tx = cx.store.begin().await?;
    let Some(user) = users::find_by_email(&mut tx, email).await? else {
        return fail(format!("there is no user {email}; create one with `crier user add {email}`"));
    };
    let token = sessions::create_link(&mut tx, user.id, sessions::LINK_LIFETIME).await?;
    tx.commit().await?;
    print_line(cx.config.absolute(&format!("/sign-in/{}", token.expose_secret())));
    eprint_validity(sessions::LINK_LIFETIME.num_minutes());
    Ok(())
}

/// Prints on stderr how long the link is valid, so that stdout contains only the link.
fn eprint_validity(minutes: i64) {
    use std::io::Write as _;
    let text = format!("Open the link in a browser. It works once and expires after {minutes} minutes.");
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
