//! `/operator/system`: the installation, and the checks that are fast enough for a page. `crier doctor` makes all
//! checks.

use std::collections::BTreeSet;
use std::time::Duration;

use askama::Template;
use crier_domain::job::JobState;
use crier_domain::plan::whole_mib;
use crier_endpoints::error::Result;
use crier_store::jobs::operate;
use crier_store::{Conn, files, server, users};

use super::operator::{format_age, shell, tabs};
use super::route::{Access, PageRoute};
use super::settings::Cap;
use super::shared::{Badge, Choice, Time, Tone};
use super::shell::Shell;
use super::visit::{PageReply, Visit};
use crate::numbers::{counted, number};

/// The time limit for a response of the file storage.
const STORAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// The age of the oldest ready job from which the check fails, in minutes.
const LATE_MINUTES: i64 = 5;
/// The name of a file that does not exist.
const PROBE: &str = "probe";

#[derive(Template)]
#[template(path = "console/operator_system.html")]
struct OperatorSystem {
    shell: Shell,
    facts: Vec<(&'static str, String)>,
    storage: Vec<Cap>,
    findings: Vec<Finding>,
    checked: Time,
}

struct Finding {
    name: &'static str,
    status: Badge,
    detail: String,
    remedy: Option<&'static str>,
}

impl Finding {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Badge::new(Tone::Good, "OK"), detail: detail.into(), remedy: None }
    }

    fn warning(name: &'static str, detail: impl Into<String>, remedy: &'static str) -> Self {
        Self { name, status: Badge::new(Tone::Warn, "Warning"), detail: detail.into(), remedy: Some(remedy) }
    }

    fn failure(name: &'static str, detail: impl Into<String>, remedy: &'static str) -> Self {
        Self { name, status: Badge::new(Tone::Bad, "Failed"), detail: detail.into(), remedy: Some(remedy) }
    }
}

impl OperatorSystem {
    fn tabs(&self) -> Vec<Choice> {
        tabs("system")
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/operator/system", show).access(Access::Operator)]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let app = &visit.app;
    let mut conn = app.store.read().await?;
    let database = server::version(&mut conn).await?;
    let totals = files::totals(&mut conn).await?;
    let all = users::list(&mut conn).await?;
    let jobs = jobs(visit, &mut conn).await?;
    drop(conn);
    let workspaces = all.iter().map(|user| user.workspace_id).collect::<BTreeSet<_>>().len();
    let schema = app.store.db().schema_version().await?;
    let facts = vec![
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Database", database.clone()),
        ("Schema", format!("version {schema}")),
        ("Public URL", app.public_url.clone()),
        ("Users", format!("{} in {}", number(all.len()), counted(workspaces, "workspace", "workspaces"))),
        ("Files", number(totals.stored)),
    ];
    let findings =
        vec![Finding::ok("Database", database), schema_check(visit).await, jobs, storage(visit).await, mail(visit)];
    let view = OperatorSystem {
        shell: shell(visit),
        facts,
        storage: vec![Cap { label: "Files", used: whole_mib(totals.bytes), limit: None, unit: "MiB" }],
        findings,
        checked: visit.time(visit.now),
    };
    visit.page(&view)
}

async fn schema_check(visit: &Visit) -> Finding {
    match visit.app.store.db().check_schema_version().await {
        Ok(()) => Finding::ok("Schema", "All migrations are applied."),
        Err(error) => Finding::failure("Schema", error.to_string(), "run crier migrate"),
    }
}

async fn jobs(visit: &Visit, conn: &mut Conn) -> Result<Finding> {
    let overview = operate::overview(conn).await?;
    let paused = operate::paused_kinds(conn).await?;
    let ready = overview.iter().filter(|count| count.state == JobState::Ready && !count.waiting);
    let oldest = ready.filter(|count| !paused.contains(&count.kind)).map(|count| visit.now - count.oldest).max();
    if let Some(age) = oldest.filter(|age| age.num_minutes() >= LATE_MINUTES) {
        let detail = format!("The oldest ready job has waited for {}.", format_age(age));
        return Ok(Finding::failure("Jobs", detail, "check that workers are running, and add more if they are busy"));
    }
    let dead: i64 = overview.iter().filter(|count| count.state == JobState::Dead).map(|count| count.jobs).sum();
    if dead > 0 {
        let detail = format!("All attempts of {} failed.", counted(dead, "job", "jobs"));
        return Ok(Finding::warning("Jobs", detail, "check the reasons under Jobs, then retry the jobs"));
    }
    if !paused.is_empty() {
        let detail = format!("{} paused.", counted(paused.len(), "job kind is", "job kinds are"));
        return Ok(Finding::warning("Jobs", detail, "resume them under Jobs"));
    }
    Ok(Finding::ok("Jobs", "No jobs are late or dead."))
}

async fn storage(visit: &Visit) -> Finding {
    let remedy = "check the directory or bucket of CRIER_STORAGE_URL";
    match tokio::time::timeout(STORAGE_TIMEOUT, visit.app.library.storage().size(PROBE)).await {
        Ok(Ok(_)) => Finding::ok("Files", "The storage responds."),
        Ok(Err(error)) => Finding::failure("Files", error.to_string(), remedy),
        Err(_) => Finding::failure("Files", "The storage does not respond.", remedy),
    }
}

fn mail(visit: &Visit) -> Finding {
    match visit.app.mailer {
        Some(_) => Finding::ok("Email", "A mail server is configured."),
        None => {
            Finding::warning("Email", "No mail server is configured, so Crier sends no email.", "set CRIER_SMTP_URL")
        }
    }
}
