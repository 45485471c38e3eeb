use chrono::DateTime;
use chrono_tz::Tz;
use crier_domain::post::{FirstCommentOverride, Post, PostStatus, TargetOverride, TargetStatus};
use serde_json::json;

use super::*;
use crate::console::composer_input::SaveMode;

fn input(form: &str) -> ComposerInput {
    ComposerInput::of_form(&Form::parse(form.as_bytes()))
}

#[test]
fn parts_are_read_in_order_and_empty_ones_are_dropped() {
    let form = "content=One&thread.2.content=Three&thread.0.content=Two&thread.0.media=7&thread.0.media=7\
        &thread.1.content=+&thread.x.content=no&thread.3.media=8";
    let mut input = input(form);
    input.drop_empty_parts();
    let part = |content: &str, media: Vec<i64>| ThreadPart { content: content.to_owned(), media };
    assert_eq!(input.thread, [part("Two", vec![7]), part("Three", vec![]), part("", vec![8])]);
}

#[test]
fn a_split_text_precedes_the_other_parts() {
    let mut input = input("content=a+b&thread.0.content=c");
    input.fill_parts(vec!["a".to_owned(), "b".to_owned()]);
    let texts: Vec<&str> = input.thread.iter().map(|part| part.content.as_str()).collect();
    assert_eq!((input.content.as_str(), texts), ("a", vec!["b", "c"]));
    input.remove_part(0);
    input.remove_part(9);
    assert_eq!(input.thread.len(), 1);
}

#[test]
fn platforms_without_threads_and_chosen_accounts_publish_only_the_first_part() {
    let input = input("content=a&thread.0.content=b&overrides.0.account_id=1&overrides.0.thread=none");
    let own = |id, platform| input.own_thread(id, Some(platform), None).map(|parts| parts.len());
    assert_eq!(own(1, Platform::Bluesky), Some(0));
    assert_eq!(own(2, Platform::Bluesky), None);
    assert_eq!(own(2, Platform::Facebook), Some(0));
    assert_eq!(ComposerInput::default().own_thread(2, Some(Platform::Facebook), None), None);
}

fn part(content: &str) -> ThreadPart {
    ThreadPart { content: content.to_owned(), media: Vec::new() }
}

/// Returns a post with the thread `p`. Each target has an account, a platform, a status and parts of its own.
fn stored(targets: &[(i64, Platform, TargetStatus, Option<&[&str]>)]) -> Stored {
    let now = DateTime::UNIX_EPOCH;
    let target = |&(account, platform, status, own): &(i64, Platform, TargetStatus, Option<&[&str]>)| {
        let thread = own.map(|parts| parts.iter().map(|content| part(content)).collect());
        let own = TargetOverride { thread, ..TargetOverride::default() };
        Target { status, ..Target::new(account, 1, (account, platform), &own, now) }
    };
    let post = Post { status: PostStatus::Failed, thread: vec![part("p")], ..Post::draft(1, now) };
    Stored { post, targets: targets.iter().map(target).collect() }
}

/// Returns the parts that accounts get from the form of a failed post, with the fields of the thread.
fn retried(stored: &Stored, fields: &str) -> Vec<Option<Vec<ThreadPart>>> {
    let input = input(&format!("_post=1&_keep=all&{fields}"));
    let own = |target: &Target| input.own_thread(target.account_id, Some(target.platform), Some(stored));
    stored.targets.iter().map(own).collect()
}

#[test]
fn an_account_with_other_parts_keeps_them() {
    use Platform::Bluesky;
    use TargetStatus::{Failed, Published};
    let (x, y) = (Some(vec![part("x")]), Some(vec![part("y")]));
    let of_post =
        stored(&[(1, Bluesky, Published, None), (2, Bluesky, Failed, None), (3, Bluesky, Failed, Some(&["y"]))]);
    assert_eq!(thread_to_edit(&of_post), [part("p")]);
    assert_eq!(retried(&of_post, "thread.0.content=p"), [None, None, y.clone()]);
    assert_eq!(retried(&of_post, "thread.0.content=x"), [None, x.clone(), y]);
    let own = stored(&[(1, Bluesky, Failed, Some(&["x"])), (2, Bluesky, Failed, None)]);
    assert_eq!(thread_to_edit(&own), [part("x")]);
    assert_eq!(retried(&own, "thread.0.content=x"), [x, None]);
    assert_eq!(retried(&own, "thread.0.content=p"), [None, None]);
    let request = ComposerInput::of_post(&own, Tz::UTC).request(SaveMode::Check, &[], Some(&own));
    assert_eq!(request.body["thread"], json!([{ "content": "p" }]), "the preview of the other account");
}

#[test]
fn all_parts_can_be_removed_after_a_failure() {
    let stored = stored(&[
        (1, Platform::Facebook, TargetStatus::Failed, Some(&[])),
        (2, Platform::Bluesky, TargetStatus::Failed, None),
    ]);
    assert_eq!(retried(&stored, "content=One"), [Some(vec![]), Some(vec![])]);
}

#[test]
fn an_account_with_only_the_first_part_gets_the_others_if_the_choice_is_cleared() {
    let stored = stored(&[(1, Platform::Bluesky, TargetStatus::Failed, Some(&[]))]);
    assert_eq!(retried(&stored, "thread.0.content=p"), [Some(vec![])], "the form has no section for the account");
    let section = "overrides.0.account_id=1";
    assert_eq!(retried(&stored, &format!("thread.0.content=p&{section}")), [None]);
    assert_eq!(retried(&stored, &format!("thread.0.content=x&{section}")), [Some(vec![part("x")])]);
    assert_eq!(retried(&stored, &format!("thread.0.content=p&{section}&overrides.0.thread=none")), [Some(vec![])]);
}

#[test]
fn a_comment_has_a_text_and_a_delay() {
    let read = |form: &str| comment_of(&Form::parse(form.as_bytes()));
    let comment = FirstComment { content: "More:".to_owned(), delay_seconds: 300 };
    assert_eq!(read("first_comment.content=More:&first_comment.delay_seconds=300"), Some(comment));
    assert_eq!(read("first_comment.content=+&first_comment.delay_seconds=300"), None);
}

#[test]
fn a_comment_that_is_changed_after_a_failure_is_for_the_accounts_that_are_retried() {
    use Platform::{Bluesky, Tiktok};
    use TargetStatus::{Failed, Published};
    let comment = |content: &str| FirstComment { content: content.to_owned(), delay_seconds: 0 };
    let mut stored = stored(&[
        (1, Bluesky, Published, None),
        (2, Bluesky, Failed, None),
        (3, Bluesky, Failed, None),
        (4, Tiktok, Failed, None),
    ]);
    stored.post.first_comment = Some(comment("post"));
    stored.targets[2].first_comment = Some(FirstCommentOverride::Own(comment("own")));
    let own = |content: &str| -> Vec<Option<Option<String>>> {
        let input = input(&format!("_post=1&_keep=all&first_comment.content={content}"));
        assert_eq!(input.post_comment(Some(&stored)), Some(&comment("post")));
        let own = |id| input.own_comment(id, Some(&stored)).map(|own| own.map(|own| own.content.clone()));
        (1..=4).map(own).collect()
    };
    let text = |text: &str| Some(Some(text.to_owned()));
    assert_eq!(own("post"), [None, None, text("own"), None]);
    assert_eq!(own("new"), [None, text("new"), text("own"), None]);
    assert_eq!(own(""), [None, Some(None), text("own"), None]);
    assert_eq!(comment_to_edit(&stored), Some(&comment("post")));
    stored.targets.remove(1);
    assert_eq!(comment_to_edit(&stored), Some(&comment("own")));
}
