//! `crier brand delete` and `crier workspace delete`, which [`crier_store::deletions`] describes.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use crier_runtime::StartError;
use crier_store::deletions::{self, Contents};
use crier_store::operators::{self, OperatorChange};
use crier_store::users;
use serde::Serialize;

use super::user::operator;
use super::{BRAND_HINT, Context, Result, fail};
use crate::cli::DeleteOptions;
use crate::output::{confirm, print_line, print_note, print_rows};

/// How long to wait for posts and replies that are being published. The run of a large video takes longest.
const MAX_WAIT: Duration = Duration::from_mins(10);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct DeletedLine {
    id: i64,
    name: String,
    brands: i64,
    posts: i64,
    accounts: i64,
    users: i64,
    files: i64,
}

pub async fn brand(cx: &Context, id: i64, options: DeleteOptions) -> Result {
    let Some(contents) = deletions::brand_contents(&mut cx.store.read().await?, id).await? else {
        return fail(format!("there is no brand {id}; {BRAND_HINT}"));
    };
    let question = format!(
        "Delete brand {id} ({}) with {}, {} and {}? {}",
        contents.name,
        count(contents.posts, "post"),
        count(contents.accounts, "account"),
        count(contents.files, "file"),
        effect(&contents, "lose access"),
    );
    ask(options, &question)?;
    let mut tx = cx.store.begin().await?;
    deletions::close_brand(&mut tx, id).await?;
    tx.commit().await?;
    delete_brands(cx, &[id]).await?;
    report("brand", id, contents, options);
    Ok(())
}

pub async fn workspace(cx: &Context, id: i64, options: DeleteOptions) -> Result {
    let Some(contents) = deletions::workspace_contents(&mut cx.store.read().await?, id).await? else {
        return fail(format!("there is no workspace {id}; see `crier user list`"));
    };
    check_operator_remains(cx, id).await?;
    let question = format!(
        "Delete workspace {id} ({}) with {}, {}, {} and {}? {}",
        contents.name,
        count(contents.brands, "brand"),
        count(contents.posts, "post"),
        count(contents.accounts, "account"),
        count(contents.files, "file"),
        effect(&contents, "are deleted"),
    );
    ask(options, &question)?;
    let mut tx = cx.store.begin().await?;
    deletions::close_workspace(&mut tx, id).await?;
    tx.commit().await?;
    let brands = deletions::brands(&mut cx.store.read().await?, id).await?;
    delete_brands(cx, &brands).await?;
    let users = users::list(&mut cx.store.read().await?).await?;
    for user in users.into_iter().filter(|user| user.workspace_id == id) {
        let mut tx = cx.store.begin().await?;
        operator::release(&mut tx, &user, OperatorChange::Deleted).await?;
        users::delete(&mut tx, &user.email).await?;
        tx.commit().await?;
    }
    let mut tx = cx.store.begin().await?;
    deletions::delete_workspace(&mut tx, id).await?;
    tx.commit().await?;
    report("workspace", id, contents, options);
    Ok(())
}

/// Fails if all operators of the installation are users of the workspace.
async fn check_operator_remains(cx: &Context, workspace: i64) -> Result {
    let mut conn = cx.store.read().await?;
    let operators = operators::ids(&mut conn).await?;
    let others = users::list(&mut conn).await?.into_iter().filter(|user| user.workspace_id != workspace);
    if operators.is_empty() || others.map(|user| user.id).any(|id| operators.contains(&id)) {
        return Ok(());
    }
    fail(format!(
        "all operators are users of workspace {workspace}; make a user of another workspace an operator first: \
         crier user operator add EMAIL"
    ))
}

fn ask(options: DeleteOptions, question: &str) -> Result {
    if options.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return fail("stdin is not a terminal, so the command cannot ask; add --yes to delete without asking");
    }
    match confirm(question) {
        Ok(true) => Ok(()),
        Ok(false) => fail("nothing was deleted"),
        Err(error) => Err(StartError::Io { what: "stdin cannot be read".to_owned(), error }.into()),
    }
}

/// Returns what a deletion means for its users, its accounts and its posts.
fn effect(contents: &Contents, fate_of_users: &str) -> String {
    let revocation = match contents.accounts {
        0 => "",
        _ => {
            " Crier deletes the tokens of the accounts, but does not revoke its access at the platforms: for that, \
             disconnect the accounts in the console first."
        }
    };
    format!(
        "Users that {fate_of_users}: {}. Published posts stay on the platforms.{revocation} This cannot be undone.",
        contents.users,
    )
}

fn count(number: i64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn report(what: &str, id: i64, contents: Contents, options: DeleteOptions) {
    let Contents { name, brands, posts, accounts, users, files } = contents;
    if options.format.json {
        print_rows(&[DeletedLine { id, name, brands, posts, accounts, users, files }], true);
    } else {
        print_line(format_args!("Deleted {what} {id} ({name}). The scheduler deletes its files within minutes."));
    }
}

/// Deletes closed brands.
async fn delete_brands(cx: &Context, brands: &[i64]) -> Result {
    let mut progress = Progress::new();
    for brand in brands {
        delete_contents(cx, *brand, &mut progress).await?;
    }
    let mut after = (!brands.is_empty()).then_some(0);
    while let Some(id) = after {
        let began = Instant::now();
        let mut tx = cx.store.begin().await?;
        after = deletions::delete_events(&mut tx, brands, id).await?;
        tx.commit().await?;
        tokio::time::sleep(began.elapsed()).await;
    }
    for brand in brands {
        let mut tx = cx.store.begin().await?;
        deletions::delete_brand(&mut tx, *brand).await?;
        tx.commit().await?;
        // On Postgres, a request that had begun before the brand was closed may have stored a post meanwhile.
        delete_contents(cx, *brand, &mut progress).await?;
    }
    Ok(())
}

/// Deletes the rows of a brand in pieces. Waits for posts and replies that are being published.
async fn delete_contents(cx: &Context, brand: i64, progress: &mut Progress) -> Result {
    let mut waiting_since: Option<Instant> = None;
    loop {
        let began = Instant::now();
        let mut tx = cx.store.begin().await?;
        let deleted = deletions::delete_some(&mut tx, brand).await?;
        tx.commit().await?;
        if deleted > 0 {
            progress.add(deleted);
            // Leaves as much time to the other writers, which on SQLite wait for this one.
            tokio::time::sleep(began.elapsed()).await;
            continue;
        }
        let busy = deletions::count_busy(&mut cx.store.read().await?, brand).await?;
        if busy == 0 {
            return Ok(());
        }
        if waiting_since.is_none() {
            print_note(format_args!(
                "Waiting for {busy} posts and conversations of brand {brand} that are in progress."
            ));
        }
        if waiting_since.get_or_insert(began).elapsed() > MAX_WAIT {
            return fail(format!(
                "{busy} posts and conversations of brand {brand} are still in progress; the brand publishes nothing \
                 else. Run the command again later to delete the rest"
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Prints the number of deleted rows from time to time.
struct Progress {
    rows: u64,
    printed: Instant,
}

impl Progress {
    fn new() -> Self {
        Self { rows: 0, printed: Instant::now() }
    }

    fn add(&mut self, rows: u64) {
        self.rows += rows;
        if self.printed.elapsed() > PROGRESS_INTERVAL {
            self.printed = Instant::now();
            print_note(format_args!("Deleted {} rows.", self.rows));
        }
    }
}
