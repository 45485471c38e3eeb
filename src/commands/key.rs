//! `crier key create | list | delete`

use chrono::{DateTime, Utc};
use crier_domain::access::{KeyMode, KeyName, MAX_KEYS, Role, Scopes};
use crier_store::keys::{self, NewKey};
use secrecy::ExposeSecret;
use serde::Serialize;

use super::{Context, Result, fail, find_user};
use crate::cli::KeyCommand;
use crate::output::{output_time, print_line, print_rows};

#[derive(Serialize)]
struct KeyLine {
    id: i64,
    user: String,
    mode: KeyMode,
    key: String,
    name: Option<String>,
    scopes: String,
    /// The role that the key has at most.
    role_limit: Option<Role>,
    last_used_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

pub async fn run(cx: &Context, command: KeyCommand) -> Result {
    match command {
        KeyCommand::Create { scopes, .. } if scopes.is_empty() => {
            fail("--scopes must name at least one scope, such as posts:read, or all")
        }
        KeyCommand::Create { user, mode, scopes, name } => {
            let mut tx = cx.store.begin().await?;
            let owner = find_user(&mut tx, &user).await?;
            let new = NewKey { name: name.as_ref().map(KeyName::as_str), ..NewKey::new(mode, &scopes) };
            let Some(key) = keys::create_within_cap(&mut tx, owner.id, &new).await? else {
                return fail(format!(
                    "{user} already has {MAX_KEYS} API keys, the maximum; delete one that is no longer used with \
                     `crier key delete ID` (see `crier key list`)"
                ));
            };
            tx.commit().await?;
            print_line(key.expose_secret());
            Ok(())
        }
        KeyCommand::List(format) => {
            let all = keys::list(&mut cx.store.read().await?, None).await?;
            let time = |at| output_time(at, format.json);
            let every_scope = Scopes::all().to_string();
            let list: Vec<KeyLine> = all
                .into_iter()
                .map(|k| KeyLine {
                    id: k.id,
                    user: k.email,
                    mode: k.mode,
                    key: format!("{}…{}", k.prefix, k.last4),
                    name: k.name,
                    scopes: if k.scopes == every_scope { "all".to_owned() } else { k.scopes },
                    role_limit: k.role_limit,
                    last_used_at: k.last_used_at.map(time),
                    created_at: time(k.created_at),
                })
                .collect();
            print_rows(&list, format.json);
            Ok(())
        }
        KeyCommand::Delete { id } => {
            let mut tx = cx.store.begin().await?;
            if !keys::delete(&mut tx, id).await? {
                return fail(format!("there is no key {id}; see `crier key list`"));
            }
            tx.commit().await?;
            print_line(format_args!("Deleted key {id}; it no longer works."));
            Ok(())
        }
    }
}
