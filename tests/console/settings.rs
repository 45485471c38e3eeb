//! New brands, the settings of a brand (texts, members, plan), and the user's sessions.

use chrono::TimeDelta;
use crier_domain::access::Role;
use crier_store::{invitations, users};

use crate::support::app::{MISSING_ID, Reply, Tenant, TestApp, on_both_apps, on_sqlite_app};
use crate::support::console::{ConsoleUser, Page};

on_both_apps!(an_invitation_gives_no_more_than_its_user_may_give);
on_both_apps!("unlimited" =>
    members_are_added_changed_and_removed,
    owners_are_managed_by_owners,
    the_only_owner_stays,
    sessions_are_listed_and_ended,
);
on_both_apps!(console "unlimited" =>
    a_brand_is_created_once,
    a_brand_is_changed,
    users_are_invited_with_a_link,
    a_form_keeps_its_key_if_its_commit_fails,
    invitations_are_mailed_and_limited,
    the_frequency_of_emails_is_chosen,
);
on_sqlite_app!(users_of_other_workspaces_are_not_revealed);
on_sqlite_app!("free" => the_plan_and_its_usage_are_shown);
on_sqlite_app!("unlimited" => editors_may_not_change_settings);
on_sqlite_app!(console "unlimited" => errors_in_a_brand_are_shown);

async fn a_brand_is_created_once(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let page = person.get("/brands/new").await;
    let form = [("name", "Café"), ("description", ""), ("website", "https://cafe.example"), ("timezone", "Asia/Tokyo")];
    for _ in 0..2 {
        person.submit_from(&page, "/brands/new", &form).await.expect(200, "Brand created.").expect(200, "Café");
    }
    assert_eq!(t.app.count_rows("brands").await, 2);
    let free = t.app.tenant("free").await;
    let person = ConsoleUser::sign_in(&free).await;
    let page = person.submit("/brands/new", "/brands/new", &form).await;
    let message = "The workspace's plan allows 1 brand. Ask the operator for a larger plan.";
    page.expect(422, message).expect(422, "value=\"Café\"");
}

async fn errors_in_a_brand_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let settings = t.path("/settings");
    let long = "x".repeat(2_001);
    for path in ["/brands/new", settings.as_str()] {
        let form = [("name", " "), ("description", long.as_str()), ("website", "ftp://x"), ("timezone", "Mars/Base")];
        let page = person.submit(path, path, &form).await;
        for field in ["e-name", "e-description", "e-website", "e-timezone", "value=\"ftp://x\""] {
            page.expect(422, field);
        }
    }
    assert_eq!(t.app.count_rows("brands WHERE name = 'Bakery'").await, 1);
}

async fn a_brand_is_changed(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/settings");
    person.get(&path).await.expect(200, "value=\"Bakery\"").expect(200, "value=\"Europe/Berlin\" selected");
    let form = [("name", "Patisserie"), ("description", "Cakes"), ("website", ""), ("timezone", "Europe/Paris")];
    let page = person.get(&path).await;
    person.submit_from(&page, &path, &form).await.expect(200, "Brand saved.").expect(200, "value=\"Patisserie\"");
    let other = [("name", "Typed later"), ("description", ""), ("website", ""), ("timezone", "Europe/Paris")];
    let shown = person.submit_from(&page, &path, &other).await;
    shown.expect(422, "already submitted with other content").expect(422, "value=\"Typed later\"");
    let brand = t.get(&t.path("")).await.data(200);
    assert_eq!((&brand["description"], &brand["timezone"]), (&"Cakes".into(), &"Europe/Paris".into()));
    assert!(brand["website"].is_null());
}

/// Sends a form that the user's page does not contain.
async fn submit_without_form(person: &ConsoleUser<'_>, path: &str, fields: &[(&str, &str)]) -> Page {
    let hidden = person.get("/brands/new").await.hidden_fields("/brands/new");
    let hidden = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    person.post(path, &hidden.chain(fields.iter().copied()).collect::<Vec<_>>()).await
}

async fn role(t: &Tenant<'_>, user: i64) -> String {
    let sql = format!("SELECT role FROM brand_members WHERE brand_id = {} AND user_id = {user}", t.brand);
    t.app.value(sql).await
}

async fn editors_may_not_change_settings(t: Tenant<'_>) {
    let editor = t.colleague(Role::Editor).await;
    let person = ConsoleUser::sign_in(&editor).await;
    person
        .get(&t.path("/settings"))
        .await
        .expect(200, "Only owners and admins of the brand can change these settings.");
    let members = person.get(&t.path("/settings/members")).await;
    members.expect(200, "Only owners and admins of the brand can add and remove members.");
    let forms = [
        ("/settings".to_owned(), ("name", "Mine")),
        ("/settings/members".to_owned(), ("email", "x@example.com")),
        (format!("/settings/members/{}/role", editor.user), ("role", "owner")),
        (format!("/settings/members/{}/remove", t.user), ("x", "")),
    ];
    for (path, field) in forms {
        submit_without_form(&person, &t.path(&path), &[field]).await.expect(403, "You cannot do this");
    }
    assert_eq!((role(&t, t.user).await, role(&t, editor.user).await), ("owner".to_owned(), "editor".to_owned()));
}

async fn members_are_added_changed_and_removed(t: Tenant<'_>) {
    let bob = t.app.user(t.workspace, "bob@example.com").await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path("/settings/members");
    let page = person.get(&path).await;
    page.expect(200, "(the only owner)");
    for _ in 0..2 {
        let done = person.submit_from(&page, &path, &[("email", "Bob@Example.com"), ("role", "editor")]).await;
        done.expect(200, "Member added.").expect(200, "bob@example.com");
    }
    assert_eq!(role(&t, bob).await, "editor");
    let again = person.submit(&path, &path, &[("email", "bob@example.com"), ("role", "admin")]).await;
    again.expect(422, "This person is already a member.");
    for (field, problem) in [("", "This field is required."), ("eve at example", "Enter an email address")] {
        let page = person.submit(&path, &path, &[("email", field), ("role", "editor")]).await;
        page.expect(422, problem).expect(422, "e-email");
    }
    person.submit(&path, &path, &[("email", "eve@example.com"), ("role", "king")]).await.expect(422, "e-role");
    let page = person.get(&path).await;
    let done = person.submit_from(&page, &format!("{path}/{bob}/role"), &[("role", "admin")]).await;
    done.expect(200, "Role updated.");
    assert_eq!(role(&t, bob).await, "admin");
    for _ in 0..2 {
        let done = person.submit_from(&page, &format!("{path}/{bob}/remove"), &[]).await;
        done.expect(200, "Member removed.");
    }
    assert_eq!(t.app.count_rows(format!("brand_members WHERE brand_id = {}", t.brand)).await, 1);
    submit_without_form(&person, &format!("{path}/{MISSING_ID}/remove"), &[])
        .await
        .expect(404, "The member does not exist.");
}

/// Invites an email address; returns the path of the link.
async fn invite(person: &ConsoleUser<'_>, t: &Tenant<'_>, email: &str, role: &str) -> String {
    let path = t.path("/settings/members");
    let page = person.submit(&path, &path, &[("email", email), ("role", role)]).await;
    path_of(page.expect(200, "Copy it now."))
}

fn path_of(page: &Page) -> String {
    let link = page.text.split_once("/invitation/").expect("a link").1;
    format!("/invitation/{}", link.split('<').next().unwrap())
}

/// Accepts an invitation; returns the response.
async fn accept(app: &TestApp, path: &str, name: &str) -> Reply {
    let form = url::form_urlencoded::Serializer::new(String::new()).append_pair("name", name).finish();
    let request = app.visit("POST", &format!("{}{path}", app.url)).raw(form);
    request.header("content-type", "application/x-www-form-urlencoded").send().await
}

async fn users_are_invited_with_a_link(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/settings/members");
    let form = person.get(&path).await;
    let fields = [("email", "Eve@Example.com"), ("role", "editor")];
    let first = path_of(&person.submit_from(&form, &path, &fields).await);
    assert_eq!(path_of(&person.submit_from(&form, &path, &fields).await), first, "a form that is sent twice");
    person.get(&path).await.expect(200, "Open invitations").expect(200, "eve@example.com");
    // A new link replaces the first one.
    let link = invite(&person, &t, "eve@example.com", "editor").await;
    t.app.page(&first).await.assert_status(410);
    assert_eq!(t.app.count_rows("invitations").await, 1);
    for _ in 0..2 {
        let page = String::from_utf8_lossy(&t.app.page(&link).await.body).into_owned();
        assert!(page.contains("Bakery") && page.contains("eve@example.com") && page.contains("Ann"), "{page}");
    }
    for name in ["", " ", "a\u{7}b", &"x".repeat(101)] {
        accept(t.app, &link, name).await.assert_status(422);
    }
    let accepted = accept(t.app, &link, "Eve").await;
    assert_eq!((accepted.status, accepted.header("location")), (303, Some(t.path("").as_str())));
    let cookie = accepted.header("set-cookie").expect("a cookie").split(';').next().unwrap().to_owned();
    let home = t.app.visit("GET", &format!("{}{}", t.app.url, t.path(""))).header("cookie", &cookie).send().await;
    assert!(String::from_utf8_lossy(&home.body).contains("Eve"), "she is signed in");
    let eve = t.app.newest_id("users WHERE email = 'eve@example.com'").await;
    assert_eq!(role(&t, eve).await, "editor");
    accept(t.app, &link, "Eve").await.assert_status(410);
    assert!(!person.get(&path).await.has("Open invitations"));
    // A user whom someone else created in the meantime is not signed in by the link.
    let link = invite(&person, &t, "bob@example.com", "editor").await;
    t.app.user(t.workspace, "bob@example.com").await;
    let rejected = accept(t.app, &link, "Bob").await;
    assert_eq!((rejected.status, rejected.header("set-cookie")), (410, None));
    let link = invite(&person, &t, "carl@example.com", "editor").await;
    t.app.clock.advance(TimeDelta::days(7));
    t.app.page(&link).await.assert_status(410);
    assert_eq!(t.app.write(async |tx| invitations::purge(tx, 100).await).await, 2);
}

/// The database may have lost only its answer to a commit, so the form that is shown again has the key of the first one.
async fn a_form_keeps_its_key_if_its_commit_fails(t: Tenant<'_>, person: ConsoleUser<'_>) {
    // A trigger of SQLite cannot run at the commit.
    if !t.app.is_postgres() {
        return;
    }
    t.app
        .sql(
            "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN RAISE EXCEPTION 'stopping' USING ERRCODE = '57P01'; END $$;
             CREATE CONSTRAINT TRIGGER stop AFTER INSERT ON invitations DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION stop()",
        )
        .await;
    let path = t.path("/settings/members");
    let key = |page: &Page| page.hidden_fields(&path).into_iter().find(|(name, _)| name == "_key").expect("a key");
    let page = person.get(&path).await;
    let fields = [("email", "eve@example.com"), ("role", "editor")];
    let shown = person.submit_from(&page, &path, &fields).await;
    shown.expect(503, "Nothing was changed.").expect(503, "value=\"eve@example.com\"");
    assert_eq!(key(&shown), key(&page));
    t.app.sql("DROP TRIGGER stop ON invitations").await;
    let link = path_of(person.submit_from(&shown, &path, &fields).await.expect(200, "Copy it now."));
    assert_eq!(path_of(&person.submit_from(&page, &path, &fields).await), link);
}

async fn an_invitation_gives_no_more_than_its_user_may_give(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let admin = t.colleague(Role::Admin).await;
    let person = ConsoleUser::sign_in(&admin).await;
    let path = t.path("/settings/members");
    let page = submit_without_form(&person, &path, &[("email", "eve@example.com"), ("role", "owner")]).await;
    page.expect(422, "Choose a role that you can assign.");
    let link = invite(&person, &t, "eve@example.com", "admin").await;
    app.member(t.brand, admin.user, Role::Editor).await;
    accept(&app, &link, "Eve").await.assert_status(410);
    app.member(t.brand, admin.user, Role::Admin).await;
    app.page(&link).await.assert_status(200);
    // The invitation of another brand cannot be canceled; that of the user's own brand can.
    let id = app.newest_id("invitations").await;
    let other_user = ConsoleUser::sign_in(&other).await;
    submit_without_form(&other_user, &other.path(&format!("/settings/invitations/{id}/cancel")), &[])
        .await
        .expect(404, "The invitation does not exist.");
    person
        .submit(&path, &t.path(&format!("/settings/invitations/{id}/cancel")), &[])
        .await
        .expect(200, "Invitation canceled");
    app.page(&link).await.assert_status(410);
    assert_eq!(app.count_rows("users WHERE email = 'eve@example.com'").await, 0);
}

async fn invitations_are_mailed_and_limited(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/settings/members");
    invite(&person, &t, "eve@example.com", "editor").await;
    assert_eq!(t.app.count_rows("mails").await, 0, "no mail server is configured");
    let url = t.app.replica_with_mail().await;
    let send_invitation = async |email: &str| {
        let page = person.get(&path).await;
        let hidden = page.hidden_fields(&path);
        let hidden = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let fields: Vec<_> = hidden.chain([("email", email), ("role", "editor")]).collect();
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = t.app.visit("POST", &format!("{url}{path}")).header("cookie", &person.cookie).raw(body);
        request.header("content-type", "application/x-www-form-urlencoded").send().await
    };
    let sent = send_invitation("bob@example.com").await;
    assert_eq!((sent.status, sent.header("location")), (303, Some(format!("{path}?note=invitation-sent").as_str())));
    let mail = t.app.newest_mail().await.body_text;
    assert!(mail.contains("Ann invited you to the brand Bakery") && mail.contains("/invitation/"), "{mail}");
    let link = mail.lines().find_map(|line| Some(format!("/invitation/{}", line.split_once("/invitation/")?.1)));
    t.app.page(&link.expect("a link")).await.assert_status(200);
    person.get(&format!("{path}?note=invitation-sent")).await.expect(200, "Sending the invitation by email.");

    // One more than 24 invitations to an address, and one more than 50 of the workspace, whoever sends them.
    let counts = "UPDATE mail_counts SET mails = {} WHERE kind = 'invitation' AND recipient =";
    t.app.sql(format!("{} 'bob@example.com'", counts.replace("{}", "24"))).await;
    let rejected = send_invitation("Bob+1@example.com").await;
    rejected.assert_status(422);
    assert!(String::from_utf8_lossy(&rejected.body).contains("This address received 24 invitations today"));
    t.app.sql(format!("{} ''", counts.replace("{}", "50"))).await;
    let rejected = send_invitation("dan@example.com").await;
    rejected.assert_status(422);
    assert!(String::from_utf8_lossy(&rejected.body).contains("The workspace has sent 50 invitations today"));
    assert_eq!(t.app.count_rows("mails").await, 1);
    assert_eq!(t.app.count_rows("invitations").await, 2, "nothing is left of those");

    let hash = if t.app.store.is_postgres() { "CAST('h' || n AS bytea)" } else { "CAST('h' || n AS blob)" };
    t.app.copy_newest_row("invitations", 48, &[("email", "email || n"), ("hash", hash)]).await;
    let full = person.submit(&path, &path, &[("email", "new@example.com"), ("role", "editor")]).await;
    full.expect(422, "50 invitations are open, the maximum.");
    invite(&person, &t, "eve@example.com", "editor").await;

    // Users and invitations to all brands of the workspace count together.
    t.app.sql("DELETE FROM invitations WHERE email <> 'eve@example.com'").await;
    for n in 0..98 {
        let email = format!("person{n}@example.com");
        t.app.write(async |tx| users::create(tx, t.workspace, &email, "User").await).await;
    }
    let full = person.submit(&path, &path, &[("email", "new@example.com"), ("role", "editor")]).await;
    full.expect(422, "The workspace has 100 users and open invitations.");
    invite(&person, &t, "eve@example.com", "editor").await;
}

async fn users_of_other_workspaces_are_not_revealed(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let email = app.email(other.user).await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path("/settings/members");
    let known = person.submit(&path, &path, &[("email", &email), ("role", "editor")]).await;
    known.expect(200, "It works once, for 7 days.");
    let unknown = person.submit(&path, &path, &[("email", "eve@example.com"), ("role", "editor")]).await;
    unknown.expect(200, "It works once, for 7 days.");
    submit_without_form(&person, &format!("{path}/{}/remove", other.user), &[])
        .await
        .expect(404, "The member does not exist.");
}

async fn owners_are_managed_by_owners(t: Tenant<'_>) {
    let (admin, editor) = (t.colleague(Role::Admin).await, t.colleague(Role::Editor).await);
    let person = ConsoleUser::sign_in(&admin).await;
    let path = t.path("/settings/members");
    let page = person.get(&path).await;
    assert!(!page.has("value=\"owner\""), "an admin is not offered to make owners: {}", page.text);
    for (of, action, field) in [(t.user, "role", ("role", "editor")), (t.user, "remove", ("x", ""))] {
        let page = submit_without_form(&person, &format!("{path}/{of}/{action}"), &[field]).await;
        page.expect(422, "Only an owner can change or remove an owner.");
    }
    let page = submit_without_form(&person, &format!("{path}/{}/role", editor.user), &[("role", "owner")]).await;
    page.expect(422, "Choose a role that you can assign.");
    let page = submit_without_form(&person, &path, &[("email", "eve@example.com"), ("role", "owner")]).await;
    page.expect(422, "Choose a role that you can assign.");
    let page = person.submit(&path, &format!("{path}/{}/role", editor.user), &[("role", "admin")]).await;
    page.expect(200, "Role updated.");
    assert_eq!((role(&t, t.user).await, role(&t, editor.user).await), ("owner".to_owned(), "admin".to_owned()));
}

async fn the_only_owner_stays(t: Tenant<'_>) {
    let admin = t.colleague(Role::Admin).await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path("/settings/members");
    for (action, field) in [("role", ("role", "admin")), ("remove", ("x", ""))] {
        let page = submit_without_form(&person, &format!("{path}/{}/{action}", t.user), &[field]).await;
        page.expect(422, "This is the only owner of the brand.");
    }
    person.submit(&path, &format!("{path}/{}/role", admin.user), &[("role", "owner")]).await.expect(200, "updated.");
    let page = person.submit(&path, &format!("{path}/{}/remove", t.user), &[]).await;
    assert_eq!((page.status, page.path.as_str()), (303, "/"), "the brand is no longer this user's");
    person.get(&path).await.expect(404, "Page not found");
    assert_eq!(role(&t, admin.user).await, "owner");
}

async fn the_plan_and_its_usage_are_shown(t: Tenant<'_>) {
    t.account("demo").await;
    let page = ConsoleUser::sign_in(&t).await.get(&t.path("/settings/plan")).await;
    page.expect(200, "Plan: free").expect(200, "1 of 3").expect(200, "0 of 30").expect(200, "Not in this plan");
    page.expect(200, "Each API key can send 60 requests per minute.");
    let t = t.app.tenant("unlimited").await;
    ConsoleUser::sign_in(&t).await.get(&t.path("/settings/plan")).await.expect(200, "1, no limit");
}

async fn sessions_are_listed_and_ended(t: Tenant<'_>) {
    let (one, two) = (ConsoleUser::sign_in(&t).await, ConsoleUser::sign_in(&t).await);
    let (three, other) = (ConsoleUser::sign_in(&t).await, t.app.tenant("unlimited").await);
    let other_user = ConsoleUser::sign_in(&other).await;
    let ids = format!("SELECT min(id) FROM api_keys WHERE user_id = {} AND prefix = 'session'", t.user);
    let first = t.app.number(ids.clone()).await;
    let second = t.app.number(format!("{ids} AND id > {first}")).await;
    let path = t.path("/settings/sessions");
    let page = one.get(&path).await;
    page.expect(200, "This session").expect(200, "Crier/").expect(200, "from 127.0.0.1");
    for _ in 0..2 {
        one.submit_from(&page, &format!("{path}/{second}/revoke"), &[]).await.expect(200, "Session ended.");
    }
    assert_eq!(two.get(&path).await.status, 303, "it leads to the sign-in page");
    submit_without_form(&one, &format!("{path}/{first}/revoke"), &[])
        .await
        .expect(403, "This is the session that you are using.");
    let theirs = t.app.newest_id(format!("api_keys WHERE user_id = {}", other.user)).await;
    submit_without_form(&one, &format!("{path}/{theirs}/revoke"), &[]).await.expect(404, "The session does not exist.");
    one.get(&path).await.expect(200, "This also disconnects all connected applications");
    one.submit(&path, &format!("{path}/revoke-others"), &[]).await.expect(200, "You have no other sessions.");
    assert_eq!(three.get(&path).await.status, 303);
    other_user.get(&other.path("/settings/sessions")).await.expect(200, "This session");
    t.get("/brands").await.assert_status(200);
}

async fn the_frequency_of_emails_is_chosen(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/settings/notifications");
    let page = person.get(&path).await;
    page.expect(200, "Hourly").expect(200, "at most one email per hour").expect(200, "has no mail server");
    for _ in 0..2 {
        person.submit_from(&page, &path, &[("frequency", "daily")]).await.expect(200, "Notifications saved.");
    }
    assert_eq!(t.app.count_rows("users WHERE notice_frequency = 'daily'").await, 1);
    person.submit(&path, &path, &[("frequency", "weekly")]).await.expect(422, "");
    assert_eq!(t.app.count_rows("users WHERE notice_frequency = 'daily'").await, 1);
}
