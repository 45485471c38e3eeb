//! `crier member add | remove`

use crier_domain::access::Role;
use crier_store::{Tx, brands, users};

use super::{BRAND_HINT, Context, Result, fail, find_user};
use crate::cli::MemberCommand;
use crate::output::print_line;

pub async fn run(cx: &Context, command: MemberCommand) -> Result {
    let mut tx = cx.store.begin().await?;
    let (brand, email) = match &command {
        MemberCommand::Add { brand, user, .. } | MemberCommand::Remove { brand, user } => (*brand, user.as_str()),
    };
    let user = find_user(&mut tx, email).await?;
    // A brand and its members must belong to the same workspace.
    if brands::workspace_of(&mut tx, brand).await? != Some(user.workspace_id) {
        return fail(format!("the workspace of {email} has no brand {brand}; {BRAND_HINT}"));
    }
    check_owner_stays(&mut tx, &command, user.id).await?;
    match command {
        MemberCommand::Add { role, .. } => {
            brands::set_member(&mut tx, brand, user.id, role).await?;
            tx.commit().await?;
            let article = if role == Role::Contributor { "a" } else { "an" };
            print_line(format_args!("{email} is now {article} {role} of brand {brand}."));
        }
        MemberCommand::Remove { .. } => {
            if !brands::remove_member(&mut tx, brand, user.id).await? {
                return fail(format!("{email} is not a member of brand {brand}"));
            }
            tx.commit().await?;
            print_line(format_args!("{email} is no longer a member of brand {brand}."));
        }
    }
    Ok(())
}

/// Fails if the brand would have no owner.
async fn check_owner_stays(tx: &mut Tx, command: &MemberCommand, user_id: i64) -> Result {
    let (MemberCommand::Add { brand, .. } | MemberCommand::Remove { brand, .. }) = command;
    brands::lock(tx, *brand).await?;
    let owners = users::members(tx, *brand).await?.into_iter().filter(|member| member.role == Role::Owner);
    let owners: Vec<i64> = owners.map(|member| member.id).collect();
    let remains_owner = matches!(command, MemberCommand::Add { role: Role::Owner, .. });
    if owners == [user_id] && !remains_owner {
        return fail(only_owner_message(*brand));
    }
    Ok(())
}

pub fn only_owner_message(brand: i64) -> String {
    format!(
        "this is the only owner of brand {brand}; make another member an owner first: \
         crier member add --brand {brand} --user EMAIL --role owner"
    )
}
