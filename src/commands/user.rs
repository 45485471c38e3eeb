//! `crier user add | list | delete | operator`

use chrono::{DateTime, Utc};
use crier_store::operators::OperatorChange;
use crier_store::users;
use serde::Serialize;

use super::member::only_owner_message;
use super::{Context, Result, fail, find_user};
use crate::cli::UserCommand;
use crate::output::{output_time, print_line, print_rows};

pub mod operator;

#[derive(Serialize)]
struct UserLine {
    id: i64,
    email: String,
    name: String,
    workspace_id: i64,
    plan: String,
    created_at: DateTime<Utc>,
}

pub async fn run(cx: &Context, command: UserCommand) -> Result {
    match command {
        UserCommand::Add { email, name, plan, workspace } => add(cx, &email, name, plan, workspace).await,
        UserCommand::List(format) => {
            let users = users::list(&mut cx.store.read().await?).await?;
            let list: Vec<UserLine> = users
                .into_iter()
                .map(|u| UserLine {
                    id: u.id,
                    email: u.email,
                    name: u.name,
                    workspace_id: u.workspace_id,
                    plan: u.plan,
                    created_at: output_time(u.created_at, format.json),
                })
                .collect();
            print_rows(&list, format.json);
            Ok(())
        }
        UserCommand::Delete { email } => delete(cx, &email).await,
        UserCommand::Operator(command) => operator::run(cx, command).await,
    }
}

async fn delete(cx: &Context, email: &str) -> Result {
    let mut tx = cx.store.begin().await?;
    let user = find_user(&mut tx, email).await?;
    operator::release(&mut tx, &user, OperatorChange::Deleted).await?;
    if let Some(brand) = users::brand_without_other_owner(&mut tx, user.id).await? {
        return fail(only_owner_message(brand));
    }
    let brands = users::brands_without_other_member(&mut tx, user.id).await?;
    users::delete(&mut tx, email).await?;
    tx.commit().await?;
    print_line(format_args!("Deleted {email}."));
    for brand in brands {
        print_line(format_args!(
            "Brand {brand} has no members, and Crier still publishes its posts. Add another user of workspace \
             {workspace}: crier member add --brand {brand} --user EMAIL --role owner",
            workspace = user.workspace_id
        ));
    }
    Ok(())
}

async fn add(cx: &Context, email: &str, name: Option<String>, plan: Option<String>, workspace: Option<i64>) -> Result {
    let well_formed = email.split_once('@').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains('@'));
    if !well_formed || email.len() > 254 || email.chars().any(char::is_whitespace) {
        return fail(format!("`{email}` is not an email address"));
    }
    let mut tx = cx.store.begin().await?;
    if users::find_by_email(&mut tx, email).await?.is_some() {
        return fail(format!("the user {email} already exists"));
    }
    let workspace = match workspace {
        Some(id) if users::workspace_plan(&mut tx, id).await?.is_none() => {
            return fail(format!("there is no workspace {id}; see `crier user list`"));
        }
        Some(id) => id,
        None => {
            let plan = plan.as_deref().unwrap_or("unlimited");
            super::plan::check_plan_exists(cx, plan)?;
            users::create_workspace(&mut tx, &format!("Workspace of {email}"), plan).await?
        }
    };
    let name = name.unwrap_or_else(|| email.split('@').next().unwrap_or(email).to_owned());
    let id = users::create(&mut tx, workspace, email, &name).await?;
    tx.commit().await?;
    print_line(format_args!(
        "Added {email} as user {id} in workspace {workspace}. Next: crier key create --user {email}"
    ));
    Ok(())
}
