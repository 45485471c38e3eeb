//! `crier user operator add | remove | list | history`

use chrono::{DateTime, Utc};
use crier_domain::brand::User;
use crier_store::operators::{self, OperatorChange};
use crier_store::{Tx, users};
use serde::Serialize;

use super::super::{CommandError, Context, Result, fail, find_user};
use crate::cli::OperatorCommand;
use crate::output::{output_time, print_line, print_rows};

#[derive(Serialize)]
struct OperatorLine {
    id: i64,
    email: String,
    name: String,
}

#[derive(Serialize)]
struct ChangeLine {
    id: i64,
    email: String,
    change: String,
    created_at: DateTime<Utc>,
}

pub async fn run(cx: &Context, command: OperatorCommand) -> Result {
    match command {
        OperatorCommand::Add { email } => add(cx, &email).await,
        OperatorCommand::Remove { email } => remove(cx, &email).await,
        OperatorCommand::List(format) => {
            let mut conn = cx.store.read().await?;
            let ids = operators::ids(&mut conn).await?;
            let operators = users::list(&mut conn).await?.into_iter().filter(|user| ids.contains(&user.id));
            let line = |user: User| OperatorLine { id: user.id, email: user.email, name: user.name };
            print_rows(&operators.map(line).collect::<Vec<_>>(), format.json);
            Ok(())
        }
        OperatorCommand::History(format) => {
            let changes = operators::changes(&mut cx.store.read().await?).await?.into_iter();
            let lines = changes.map(|operators::ChangeRecord { id, email, change, created_at }| ChangeLine {
                id,
                email,
                change,
                created_at: output_time(created_at, format.json),
            });
            print_rows(&lines.collect::<Vec<_>>(), format.json);
            Ok(())
        }
    }
}

async fn add(cx: &Context, email: &str) -> Result {
    let mut tx = cx.store.begin().await?;
    let user = find_user(&mut tx, email).await?;
    if operators::lock(&mut tx).await?.contains(&user.id) {
        return fail(format!("{email} is already an operator"));
    }
    operators::change(&mut tx, &user, OperatorChange::Added).await?;
    tx.commit().await?;
    print_line(format_args!("{email} is an operator."));
    Ok(())
}

async fn remove(cx: &Context, email: &str) -> Result {
    let mut tx = cx.store.begin().await?;
    let user = find_user(&mut tx, email).await?;
    if !release(&mut tx, &user, OperatorChange::Removed).await? {
        return fail(format!("{email} is not an operator; see `crier user operator list`"));
    }
    tx.commit().await?;
    print_line(format_args!("{email} is no longer an operator."));
    Ok(())
}

/// Removes a user from the operators. Returns false if the user is not an operator. Fails for the last operator.
pub async fn release(tx: &mut Tx, user: &User, change: OperatorChange) -> std::result::Result<bool, CommandError> {
    let operators = operators::lock(tx).await?;
    if !operators.contains(&user.id) {
        return Ok(false);
    }
    if operators.len() == 1 {
        let email = &user.email;
        return fail(format!("{email} is the only operator; add another one first: crier user operator add EMAIL"));
    }
    operators::change(tx, user, change).await?;
    Ok(true)
}
