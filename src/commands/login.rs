//! `crier login`: prints a link that signs a user in to the console.

use crier_store::{sessions, users};
use secrecy::ExposeSecret;

use super::{Context, Result, fail};
use crate::output::print_link;

pub async fn run(cx: &Context, email: &str) -> Result {
    let mut tx = cx.store.begin().await?;
    let Some(user) = users::find_by_email(&mut tx, email).await? else {
        return fail(format!(
            "there is no user {email}; see `crier user list`, or create one with `crier user add {email}`"
        ));
    };
    let token = sessions::create_link(&mut tx, user.id, sessions::LINK_LIFETIME).await?;
    tx.commit().await?;
    print_link(cx.config.absolute(&format!("/sign-in/{}", token.expose_secret())), sessions::LINK_LIFETIME);
    Ok(())
}
