//! `crier app set | list | delete`

use std::io::{IsTerminal as _, Read as _};

use crier_domain::application::{Application, MAX_CREDENTIAL, Owner, is_credential};
use crier_domain::catalogue;
use crier_runtime::StartError;
use crier_store::applications::{self, NewApplication};
use crier_store::{brands, users};

use super::{BRAND_HINT, CommandError, Context, Result, fail};
use crate::cli::{AppCommand, SetApp};
use crate::output::{print_line, print_note, print_rows};

pub async fn run(cx: &Context, command: AppCommand) -> Result {
    match command {
        AppCommand::Set(args) => set(cx, args).await,
        AppCommand::List(format) => {
            print_rows(&applications::list(&mut cx.store.read().await?).await?, format.json);
            Ok(())
        }
        AppCommand::Delete { id } => {
            let mut tx = cx.store.begin().await?;
            if let Some(server) = applications::registered_at(&mut tx, id).await? {
                return fail(format!(
                    "Crier registered application {id} at {server} automatically, and replaces it if the server deletes \
                     it; it cannot be deleted here"
                ));
            }
            if !applications::delete(&mut tx, id).await? {
                return fail(format!("there is no application {id}; see `crier app list`"));
            }
            tx.commit().await?;
            print_line(format_args!("Deleted application {id}; accounts can no longer be connected with it."));
            Ok(())
        }
    }
}

async fn set(cx: &Context, args: SetApp) -> Result {
    let SetApp { platform, target, workspace, brand, client_id } = args;
    if !catalogue::descriptor(platform).needs_application() {
        return fail(format!("{platform} does not need an application"));
    }
    if target != platform.application_target(target) {
        return fail(format!("{platform} has one application for all targets; omit --target"));
    }
    let client_id = client_id.trim().to_owned();
    let secret = read_secret()?;
    if !is_credential(&client_id) || !is_credential(&secret) {
        return fail(format!("the client ID and the secret on stdin must have 1 to {MAX_CREDENTIAL} characters"));
    }
    let application = Application::new(client_id, secret);
    let mut tx = cx.store.begin().await?;
    let owner = match (workspace, brand) {
        (_, Some(id)) if brands::workspace_of(&mut tx, id).await?.is_none() => {
            return fail(format!("there is no brand {id}; {BRAND_HINT}"));
        }
        (_, Some(id)) => Owner::Brand(id),
        (Some(id), None) if users::workspace_plan(&mut tx, id).await?.is_none() => {
            return fail(format!("there is no workspace {id}; see `crier user list`"));
        }
        (Some(id), None) => Owner::Workspace(id),
        (None, None) => Owner::Installation,
    };
    let new = NewApplication { platform, target, owner, instance: "", redirect_uri: "", application: &application };
    let (id, updated) = crier_runtime::applications::set(&mut tx, &new).await?;
    tx.commit().await?;
    let callback = cx.config.absolute(&format!("/connect/callback/{platform}"));
    print_line(format_args!("Set application {id}. Its callback URL at the platform must be {callback}"));
    if updated > 0 {
        print_line(format_args!("Connected accounts that use the new secret: {updated}."));
    }
    Ok(())
}

/// Reads the secret from stdin, so that it is not in the shell's history or in the list of processes.
fn read_secret() -> std::result::Result<String, CommandError> {
    let mut text = String::new();
    let max_bytes = MAX_CREDENTIAL as u64 + 2;
    if std::io::stdin().is_terminal() {
        print_note("Enter the client secret on a line, then press Ctrl-D:");
    }
    let read = std::io::stdin().lock().take(max_bytes).read_to_string(&mut text);
    read.map_err(|error| StartError::Io { what: "the secret on stdin cannot be read".into(), error })?;
    Ok(text.trim().to_owned())
}
