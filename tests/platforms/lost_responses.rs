//! Posts whose responses are lost, on a Mastodon-compatible server that strips texts and forgets keys. Invariant: what
//! the server has is not sent again, and a target never takes a status that is not its own.

use chrono::SecondsFormat;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_domain::post::{Target, TargetStatus};
use crier_store::accounts::NewAccount;
use secrecy::SecretString;
use serde_json::json;

use crate::support::jobs::TestWorker;
use crate::support::mastodon::{Mastodon, RunningMastodon, Switches};
use crate::support::store::{TestStore, new_account, on_both};

on_both!(start =>
    a_text_that_the_server_changes_is_published_once,
    a_rendered_text_is_recognized_where_there_are_no_sources,
    a_status_of_another_target_is_never_adopted,
    two_lost_responses_get_a_status_each,
    the_status_of_a_later_call_is_not_adopted,
    a_post_that_the_server_does_not_have_waits_for_no_other,
    a_status_of_another_application_or_from_before_the_call_is_not_adopted,
    the_window_follows_the_clock_of_the_server,
    one_of_several_equal_statuses_is_never_guessed,
    a_call_whose_time_is_in_the_future_is_never_guessed,
);

const TOKEN: &str = "access-of-ann";
const LOST_RESPONSE: Switches = Switches {
    strips_texts: true,
    forgets_keys: true,
    loses_responses: true,
    has_no_sources: false,
    max_characters: None,
    loses_posts: false,
};
const LOST_POST: Switches = Switches { loses_responses: false, loses_posts: true, ..LOST_RESPONSE };
const WORKS: Switches = Switches { loses_responses: false, ..LOST_RESPONSE };

struct Lost {
    w: TestWorker,
    mastodon: RunningMastodon,
    account: i64,
}

async fn start(s: TestStore) -> Lost {
    let mastodon = Mastodon::start("2026-01-01T00:00:00Z").await;
    mastodon.fake.oauth.add_token(TOKEN);
    let w = TestWorker::with_base_url(s, Platform::Mastodon, &mastodon.server.uri()).await;
    let secrets = json!({
        "instance": mastodon.server.uri(), "access_token": TOKEN, "account_id": "23634", "client_id": "app-1",
        "client_secret": "shh-1",
    });
    let (id, secrets) = ("ann@example.social", SecretString::from(secrets.to_string()));
    let platform = Platform::Mastodon;
    let new = NewAccount { platform, external_id: id.to_owned(), secrets, ..new_account(id, "") };
    let account = w.store_account(w.world, &new).await.id;
    let lost = Lost { w, mastodon, account };
    lost.set_time(0);
    lost
}

impl Lost {
    /// Sets the server's clock to the test's, plus this number of seconds.
    fn set_time(&self, seconds: i64) {
        let now = self.w.later(seconds).to_rfc3339_opts(SecondsFormat::Millis, true);
        self.mastodon.fake.set_now(&now);
    }

    async fn advance(&self, seconds: i64) {
        self.w.advance(seconds);
        self.set_time(0);
    }

    /// Publishes a text once, to a server with these switches. Returns the target.
    async fn publish(&self, text: &str, switches: Switches) -> i64 {
        self.mastodon.fake.set(switches);
        let (post, made) = self.w.s.post(self.w.world, &[self.account]).await;
        self.w.change_post(post, |post| post.content = text.to_owned()).await;
        self.w.enqueue(made[0], self.account, self.w.clock.now()).await;
        self.w.run_jobs().await;
        made[0]
    }

    /// Runs the remaining jobs after the calls have timed out, with a server that works.
    async fn finish(&self) {
        self.mastodon.fake.set(WORKS);
        self.advance(3_600).await;
        self.w.run_jobs().await;
    }

    async fn ended(&self, target: i64) -> (TargetStatus, Option<String>, Option<Category>) {
        let Target { status, external_id, error, .. } = self.w.target(target).await;
        (status, external_id, error.map(|error| error.category))
    }

    async fn is_out(&self, target: i64, id: &str) {
        assert_eq!(self.ended(target).await, (TargetStatus::Published, Some(id.to_owned()), None));
    }

    fn count(&self) -> usize {
        self.mastodon.fake.toots().len()
    }
}

async fn a_text_that_the_server_changes_is_published_once(t: Lost) {
    let texts = ["  Good morning! ", "a\n\n\n\nb", "one\r\ntwo\r\n", "Cafe\u{301}\u{a0}\n", "Rye & <b>\n"];
    for (number, text) in texts.iter().enumerate() {
        let target = t.publish(text, LOST_RESPONSE).await;
        t.finish().await;
        t.is_out(target, &format!("{}", 1000 + number)).await;
        assert_eq!(t.count(), number + 1, "{text:?}");
    }
}

async fn a_rendered_text_is_recognized_where_there_are_no_sources(t: Lost) {
    let no_sources = Switches { has_no_sources: true, ..LOST_RESPONSE };
    let target = t.publish("Fresh <bread> & rye\n\nat seven\nand eight ", no_sources).await;
    t.mastodon.fake.set(Switches { has_no_sources: true, ..WORKS });
    t.advance(3_600).await;
    t.w.run_jobs().await;
    t.is_out(target, "1000").await;
    assert_eq!(t.count(), 1);
}

async fn a_status_of_another_target_is_never_adopted(t: Lost) {
    let first = t.publish("Good morning!", WORKS).await;
    let second = t.publish("Good morning!", LOST_POST).await;
    t.finish().await;
    t.is_out(first, "1000").await;
    t.is_out(second, "1001").await;
    assert_eq!(t.count(), 2);
}

async fn two_lost_responses_get_a_status_each(t: Lost) {
    let first = t.publish("Good morning!", LOST_RESPONSE).await;
    let second = t.publish("Good morning!", LOST_POST).await;
    t.finish().await;
    let mut ids = vec![t.ended(first).await.1.unwrap(), t.ended(second).await.1.unwrap()];
    ids.sort();
    assert_eq!(ids, ["1000", "1001"]);
    assert_eq!(t.count(), 2);
}

/// The two posts may differ in what is not compared, such as their images.
async fn the_status_of_a_later_call_is_not_adopted(t: Lost) {
    let first = t.publish("Good morning!", LOST_POST).await;
    t.advance(10).await;
    let second = t.publish("Good morning!", LOST_RESPONSE).await;
    t.finish().await;
    // The first call may have been looked up before the second one.
    t.finish().await;
    t.is_out(second, "1000").await;
    t.is_out(first, "1001").await;
    assert_eq!(t.count(), 2);
}

async fn a_post_that_the_server_does_not_have_waits_for_no_other(t: Lost) {
    let first = t.publish("Good morning!", LOST_POST).await;
    t.advance(10).await;
    let second = t.publish("Good morning!", LOST_POST).await;
    // The outcome of the second call remains unknown.
    t.w.s.sql(format!("DELETE FROM jobs WHERE subject_id = {second}")).await;
    t.finish().await;
    t.is_out(first, "1000").await;
}

async fn a_status_of_another_application_or_from_before_the_call_is_not_adopted(t: Lost) {
    t.mastodon.fake.publish_as_user("Good morning!", None);
    t.advance(10).await;
    t.mastodon.fake.publish_as_user("Good morning!", Some("Web"));
    let target = t.publish("Good morning!", LOST_POST).await;
    t.finish().await;
    t.is_out(target, "1002").await;
    assert_eq!(t.count(), 3);
}

async fn the_window_follows_the_clock_of_the_server(t: Lost) {
    // The server's clock is five minutes ahead, then five behind. An earlier status is outside the window, and the
    // published one is inside.
    for (seconds, id) in [(300, "1001"), (-300, "1003")] {
        t.w.advance(3_600);
        t.set_time(seconds);
        t.mastodon.fake.publish_as_user("Good morning!", None);
        t.w.advance(60);
        t.set_time(seconds);
        let target = t.publish("Good morning!", LOST_RESPONSE).await;
        t.mastodon.fake.set(WORKS);
        t.w.advance(3_600);
        t.set_time(seconds);
        t.w.run_jobs().await;
        t.is_out(target, id).await;
    }
    assert_eq!(t.count(), 4);
}

async fn one_of_several_equal_statuses_is_never_guessed(t: Lost) {
    let target = t.publish("Good morning!", LOST_RESPONSE).await;
    t.mastodon.fake.publish_as_user("Good morning!", None);
    t.finish().await;
    assert_eq!(t.ended(target).await, (TargetStatus::Failed, None, Some(Category::OutcomeUnknown)));
    assert_eq!(t.count(), 2);
}

async fn a_call_whose_time_is_in_the_future_is_never_guessed(t: Lost) {
    t.w.clock.set(chrono::TimeDelta::days(40));
    t.w.clock.restart();
    let target = t.publish("Good morning!", LOST_POST).await;
    t.w.clock.set(-chrono::TimeDelta::days(40));
    t.mastodon.fake.publish_as_user("Good morning!", None);
    t.w.run_early(target).await;
    assert_eq!(t.ended(target).await, (TargetStatus::Failed, None, Some(Category::OutcomeUnknown)));
    assert_eq!(t.count(), 1);
}
