//! `crier member add | remove`

use crier_store::{brands, users};

use super::{Context, Result, refused};
use crate::cli::MemberCommand;
use crate::output::print_line;

pub async fn run(cx: &Context, command: MemberCommand) -> Result {
    let mut tx = cx.store.begin().await?;
    let (brand, email) = match &command {
        MemberCommand::Add { brand, user, .. } | MemberCommand::Remove { brand, user } => (*brand, user.as_str()),
    };
    let Some(user) = users::find_by_email(&mut tx, email).await? else {
        return refused(format!("there is no user {email}; `crier user list` shows who is there"));
    };
    // A brand and its members must belong to the same workspace.
    if brands::workspace_of(&mut tx, brand).await? != Some(user.workspace_id) {
        return refused(format!("the workspace of {email} has no brand {brand}"));
    }
    match command {
        MemberCommand::Add { role, .. } => {
            brands::set_member(&mut tx, brand, user.id, role).await?;
            tx.commit().await?;
            print_line(format_args!("{email} is {role} of brand {brand}."));
        }
        MemberCommand::Remove { .. } => {
            if !brands::remove_member(&mut tx, brand, user.id).await? {
                return refused(format!("{email} is no member of brand {brand}"));
            }
            tx.commit().await?;
            print_line(format_args!("{email} is no longer a member of brand {brand}."));
        }
    }
    Ok(())
}
