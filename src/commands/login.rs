//! `crier login`: prints a link that signs a user in to the console.

use crier_store::sessions;
use secrecy::ExposeSecret;

use super::{Context, Result, find_user};
use crate::output::print_link;

pub async fn run(cx: &Context, email: &str) -> Result {
    let mut tx = cx.store.begin().await?;
    let user = find_user(&mut tx, email).await?;
    let token = sessions::create_link(&mut tx, user.id, sessions::LINK_LIFETIME).await?;
    tx.commit().await?;
    print_link(cx.config.absolute(&format!("/sign-in/{}", token.expose_secret())), sessions::LINK_LIFETIME);
    Ok(())
}
