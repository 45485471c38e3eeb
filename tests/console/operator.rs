//! The operator's pages: the jobs of all workspaces, users, plans and the system. The first tenant of a test is an
//! operator.

use crier_domain::access::Role;
use crier_domain::application::{Application, Owner};
use crier_domain::job::JobState;
use crier_domain::platform::{ConnectTarget, Platform};
use crier_store::applications::{self, NewApplication};
use serde_json::json;

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_sqlite_app};
use crate::support::console::ConsoleUser;

on_both_apps!("unlimited" => pages_without_a_brand_show_the_menu_of_the_first_brand);
on_both_apps!(console "unlimited" =>
    a_dead_job_is_shown_with_its_reason_and_run_again,
    all_dead_jobs_of_a_kind_are_run_again,
    a_scheduled_job_is_cancelled,
    jobs_are_filtered_and_paged,
    users_plans_and_the_system_are_shown,
    a_kind_is_paused_and_resumed,
    applications_are_set_and_deleted,
    an_application_that_crier_registered_cannot_be_deleted,
);
on_sqlite_app!(only_the_operator_has_access);

/// Publishes a post whose job dies; returns the job's id.
async fn create_dead_job(app: &TestApp, t: &Tenant<'_>, account: i64) -> i64 {
    let body = json!({ "content": "Bread", "schedule_type": "now", "accounts": [account] });
    let post = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    let job = app.newest_id("jobs WHERE kind = 'publish_target'").await;
    app.fail_post(post, "platform_rejected", "Cold.").await;
    app.kill_job(job, 5, "<b>cold oven</b>").await;
    job
}

async fn a_dead_job_is_shown_with_its_reason_and_run_again(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    person.get("/operator").await.expect(200, "No dead jobs").expect(200, "publish_target");
    let job = create_dead_job(t.app, &t, account).await;
    let page = person.get("/operator").await;
    page.expect(200, &format!("Job {job}")).expect(200, "<b>cold oven</b>").expect(200, "Dead jobs");
    assert!(!String::from_utf8_lossy(&page.reply.body).contains("<b>cold"), "reasons are escaped");
    let retry = format!("/operator/jobs/{job}/retry");
    for _ in 0..2 {
        person.submit_from(&page, &retry, &[]).await.expect(200, "Retrying the job.");
    }
    let shown = t.app.show(job).await;
    assert_eq!((shown.state, shown.attempt), (JobState::Ready, 0));
    // Another form for the same job, which is ready by then.
    let mut hidden = page.hidden_fields(&retry);
    hidden.iter_mut().filter(|(name, _)| name == "_key").for_each(|(_, value)| value.push('x'));
    let fields: Vec<(&str, &str)> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    person.post(&retry, &fields).await.expect(422, "Nothing was changed");
    person.post(&format!("/operator/jobs/{MISSING_ID}/retry"), &fields).await.expect(404, "Page not found");
}

async fn all_dead_jobs_of_a_kind_are_run_again(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    create_dead_job(t.app, &t, account).await;
    let dead = "jobs WHERE state = 'dead'";
    let page = person.get("/operator?kind=deliver_webhook").await;
    page.expect(200, "No matching jobs");
    let (path, other) = ("/operator?state=dead&kind=publish_target", "/operator/jobs/retry-dead?kind=deliver_webhook");
    let hidden = person.get("/operator").await.hidden_fields("/operator/jobs/retry-dead");
    let fields: Vec<(&str, &str)> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    person.post(other, &fields).await.expect(303, "");
    assert_eq!(t.app.count_rows(dead).await, 1, "it is of another kind");
    let page = person.submit(path, "/operator/jobs/retry-dead?kind=publish_target", &[]).await;
    page.expect(200, "Retrying the dead jobs.");
    assert_eq!(t.app.count_rows(dead).await, 0);
}

async fn a_scheduled_job_is_cancelled(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let body = json!({ "content": "Bread", "schedule_type": "now", "accounts": [account] });
    t.post(&t.path("/posts"), body).await.expect(201);
    let job = t.app.newest_id("jobs WHERE kind = 'publish_target'").await;
    let page = person.get("/operator?state=ready&kind=publish_target").await;
    for _ in 0..2 {
        let done = person.submit_from(&page, &format!("/operator/jobs/{job}/cancel"), &[]).await;
        done.expect(200, "Job canceled.");
    }
    assert_eq!(t.app.count_rows("jobs WHERE state = 'cancelled'").await, 1);
    assert_eq!(t.app.count_rows("post_targets WHERE status = 'failed'").await, 1);
    person.get("/operator?state=cancelled").await.expect(200, "canceled by the operator").expect(200, "Retry");
}

async fn a_kind_is_paused_and_resumed(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (pause, resume) = ("/operator/kinds/publish_target/pause", "/operator/kinds/publish_target/resume");
    let page = person.submit("/operator", pause, &[]).await;
    page.expect(200, "Job kind paused").expect(200, "Paused");
    assert_eq!(t.app.count_rows("paused_kinds").await, 1);
    let hidden = page.hidden_fields(resume);
    let fields: Vec<(&str, &str)> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    person.post("/operator/kinds/flown/resume", &fields).await.expect(404, "Page not found");
    person.submit_from(&page, resume, &[]).await.expect(200, "Job kind resumed.");
    assert_eq!(t.app.count_rows("paused_kinds").await, 0);
}

async fn jobs_are_filtered_and_paged(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    for _ in 0..21 {
        create_dead_job(t.app, &t, account).await;
    }
    person.get("/operator").await.expect(200, "1–20 of 21").expect(200, "Retry 21 dead jobs?");
    person.get("/operator?page=2").await.expect(200, "21–21 of 21");
    person.get("/operator?state=&page=1").await.expect(200, "<h2 id=\"jobs\">Jobs</h2>");
    for query in ["page=0", "page=x", "state=flown", "kind=flown", "state=dead&kind="] {
        person.get(&format!("/operator?{query}")).await.expect(200, "1–20 of 21");
    }
    person.get("/operator?page=9223372036854775807").await.expect(200, "No dead jobs");
    for state in ["scheduled", "ready", "running", "done", "cancelled"] {
        assert_eq!(person.get(&format!("/operator?state={state}")).await.status, 200);
    }
}

async fn users_plans_and_the_system_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let other = t.app.tenant("free").await;
    let users = person.get("/operator/users").await;
    let email = t.app.email(t.user).await;
    users.expect(200, &email).expect(200, "free").expect(200, "unlimited");
    let plans = person.get("/operator/plans").await;
    plans.expect(200, &format!("Workspace {}", other.workspace)).expect(200, "500 MiB").expect(200, "Link in bio");
    let system = person.get("/operator/system").await;
    system.expect(200, &t.app.url).expect(200, "All migrations are applied.").expect(200, "2 in 2 workspaces");
    system.expect(200, "The storage responds.").expect(200, "No jobs are late");
    for path in ["/operator/users?page=99", "/operator/plans?page=99"] {
        assert_eq!(person.get(path).await.status, 200);
    }
}

async fn applications_are_set_and_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (path, brand, missing) = ("/operator/applications", t.brand.to_string(), MISSING_ID.to_string());
    person.get(path).await.expect(200, "No applications");
    let form = [
        ("platform", "tumblr"),
        ("client_id", "id-1"),
        ("client_secret", "hidden-1"),
        ("target", "default"),
        ("workspace", ""),
        ("brand", brand.as_str()),
    ];
    let page = person.submit(path, path, &form).await;
    page.expect(200, "Application saved.").expect(200, &format!("Bakery (brand {brand})")).expect(200, "id-1");
    page.expect(200, "/connect/callback/tumblr");
    assert!(!page.has("hidden-1") && !page.has("badge-plain\">Pages"), "{}", page.text);
    for (name, value, problem) in [
        ("platform", "bluesky", "Choose a platform"),
        ("client_id", " ", "Enter 1 to 2048 characters"),
        ("client_secret", "", "Enter 1 to 2048 characters"),
        ("target", "page", "Tumblr has one application for all accounts."),
        ("brand", missing.as_str(), "This brand does not exist"),
        ("workspace", "1", "but not both"),
    ] {
        // The last value of a field counts.
        let page = person.submit(path, path, &[form.as_slice(), &[(name, value)]].concat()).await;
        page.expect(422, problem);
        assert!(!page.has("hidden-1"), "{}", page.text);
    }
    let elsewhere = [form.as_slice(), &[("brand", ""), ("workspace", missing.as_str())]].concat();
    person.submit(path, path, &elsewhere).await.expect(422, "This workspace does not exist");
    // An application of the same owner is replaced.
    let page = person.submit(path, path, &[form.as_slice(), &[("client_id", "id-2")]].concat()).await;
    page.expect(200, "id-2");
    assert_eq!(t.app.count_rows("applications").await, 1);
    let delete = format!("{path}/{}/delete", t.app.newest_id("applications").await);
    for _ in 0..2 {
        person.submit_from(&page, &delete, &[]).await.expect(200, "Application deleted.");
    }
    assert_eq!(t.app.count_rows("applications").await, 0);
}

async fn an_application_that_crier_registered_cannot_be_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = "/operator/applications";
    let new = NewApplication {
        platform: Platform::Mastodon,
        target: ConnectTarget::Default,
        owner: Owner::Installation,
        instance: "https://8.8.8.8",
        redirect_uri: "https://crier.example/connect/callback/mastodon",
        application: &Application::new("id-1", "hidden-1"),
    };
    let id = t.app.write(async |tx| applications::set(tx, &new).await).await;
    let page = person.get(path).await;
    page.expect(200, "No applications");
    // The page has no form for it.
    let hidden = page.hidden_fields(path);
    let fields: Vec<(&str, &str)> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let rejected = person.post(&format!("{path}/{id}/delete"), &fields).await;
    rejected.expect(403, "Crier registered this application at https://8.8.8.8 automatically");
    assert_eq!(t.app.count_rows("applications").await, 1);
}

async fn pages_without_a_brand_show_the_menu_of_the_first_brand(t: Tenant<'_>) {
    let bio = format!("href=\"{}\"", t.path("/bio"));
    let owner = ConsoleUser::sign_in(&t).await;
    for path in ["/operator", "/brands/new"] {
        owner.get(path).await.expect(200, &bio);
    }
    let contributor = ConsoleUser::sign_in(&t.colleague(Role::Contributor).await).await;
    let page = contributor.get("/brands/new").await;
    page.expect(200, &format!("href=\"{}\"", t.path("/posts")));
    assert!(!page.has(&bio), "{}", page.text);
}

async fn only_the_operator_has_access(app: TestApp) {
    let first = app.tenant("unlimited").await;
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    for path in ["/operator", "/operator/users", "/operator/plans", "/operator/applications", "/operator/system"] {
        person.get(path).await.expect(403, "Only operators");
    }
    let operator = ConsoleUser::sign_in(&first).await;
    let hidden = operator.get("/operator").await.hidden_fields("/operator/kinds/publish_target/pause");
    let fields: Vec<(&str, &str)> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(person.post("/operator/kinds/publish_target/pause", &fields).await.status, 403);
    assert_eq!(app.count_rows("paused_kinds").await, 0);
}
