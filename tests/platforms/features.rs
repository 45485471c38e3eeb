//! Threads, first comments and unpublishing: the table in `docs/platforms.md`, which is generated from the catalogue, and
//! for each platform a test that what the catalogue promises works.

use std::collections::BTreeSet;

use crier_domain::catalogue;
use crier_domain::platform::{Capabilities, CommentRules, Platform, TextUnit};

use Feature::{FirstComment, Thread, Unpublish};

use crate::support::page;

/// What a platform may be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Feature {
    Thread,
    FirstComment,
    Unpublish,
}

/// The tests for a platform: the file in `tests` that has them, and a test for each feature.
type PlatformTests = (Platform, &'static str, &'static [(Feature, &'static str)]);

const TESTS: &[PlatformTests] = &[
    (
        Platform::Telegram,
        "platforms/telegram_threads",
        &[
            (Thread, "a_part_of_a_thread_replies_to_the_part_before"),
            (FirstComment, "a_comment_replies_to_the_forward_that_is_pinned_in_the_group"),
            (Unpublish, "unpublishing_deletes_all_messages_of_a_post"),
        ],
    ),
    (
        Platform::Bluesky,
        "platforms/bluesky_threads",
        &[
            (Thread, "a_thread_is_written_in_one_call"),
            (FirstComment, "a_first_comment_replies_to_its_post"),
            (Unpublish, "unpublishing_deletes_one_post_and_can_be_repeated"),
        ],
    ),
    (
        Platform::Wordpress,
        "platforms/wordpress_comments",
        &[
            (FirstComment, "a_first_comment_is_written_below_the_post"),
            (Unpublish, "posts_and_comments_go_to_the_trash_and_a_deletion_can_be_repeated"),
        ],
    ),
    (
        Platform::Woocommerce,
        "platforms/woocommerce",
        &[(Unpublish, "a_product_goes_to_the_trash_and_a_deletion_can_be_repeated")],
    ),
    (
        Platform::Sandbox,
        "jobs/sandbox",
        &[
            (Thread, "parts_and_comments_are_under_their_post"),
            (FirstComment, "parts_and_comments_are_under_their_post"),
            (Unpublish, "unpublishing_removes_a_post_from_the_page"),
        ],
    ),
    (
        Platform::Mastodon,
        "platforms/mastodon_threads",
        &[
            (Thread, "each_part_replies_to_the_part_before"),
            (FirstComment, "a_first_comment_is_as_visible_as_its_post"),
            (Unpublish, "unpublishing_deletes_one_post_and_can_be_repeated"),
        ],
    ),
    (Platform::Shopify, "platforms/shopify", &[(Unpublish, "an_article_is_deleted_and_a_deletion_can_be_repeated")]),
    (
        Platform::Facebook,
        "platforms/facebook_comments",
        &[
            (FirstComment, "a_first_comment_is_published_on_the_post"),
            (Unpublish, "a_post_is_deleted_and_a_second_deletion_succeeds"),
        ],
    ),
    (
        Platform::Instagram,
        "platforms/instagram_comments",
        &[
            (FirstComment, "a_first_comment_is_published_without_a_container"),
            (Unpublish, "a_post_is_deleted_only_with_the_login_of_facebook"),
        ],
    ),
    (
        Platform::Threads,
        "platforms/threads",
        &[
            (Thread, "parts_of_a_thread_and_a_comment_are_containers_that_reply"),
            (FirstComment, "parts_of_a_thread_and_a_comment_are_containers_that_reply"),
            (Unpublish, "a_post_is_deleted_and_a_second_deletion_changes_nothing"),
        ],
    ),
    (
        Platform::Twitter,
        "platforms/twitter",
        &[
            (Thread, "parts_of_a_thread_and_a_comment_are_replies"),
            (FirstComment, "parts_of_a_thread_and_a_comment_are_replies"),
            (Unpublish, "a_post_is_deleted_and_a_second_deletion_changes_nothing"),
        ],
    ),
    (
        Platform::Linkedin,
        "platforms/linkedin_comments",
        &[
            (FirstComment, "a_first_comment_is_published_in_the_name_of_the_account"),
            (Unpublish, "a_post_is_deleted_and_a_second_deletion_succeeds"),
        ],
    ),
    (Platform::Pinterest, "platforms/pinterest", &[(Unpublish, "a_pin_is_deleted_and_a_deletion_can_be_repeated")]),
    (
        Platform::GoogleBusiness,
        "platforms/google_business",
        &[(Unpublish, "a_post_is_deleted_and_a_deletion_can_be_repeated")],
    ),
    (
        Platform::Reddit,
        "platforms/reddit_comments",
        &[
            (FirstComment, "a_first_comment_is_written_below_the_post"),
            (Unpublish, "posts_and_comments_are_deleted_and_a_deletion_can_be_repeated"),
        ],
    ),
    (Platform::Tumblr, "platforms/tumblr", &[(Unpublish, "a_post_is_deleted_and_a_deletion_can_be_repeated")]),
    (
        Platform::Youtube,
        "platforms/youtube",
        &[
            (FirstComment, "a_first_comment_is_published_below_the_video"),
            (Unpublish, "videos_and_comments_are_deleted_and_a_deletion_can_be_repeated"),
        ],
    ),
];

/// Returns the features that the catalogue promises.
fn promised(capabilities: &Capabilities) -> BTreeSet<Feature> {
    let of = [
        (Thread, capabilities.thread.is_some()),
        (FirstComment, capabilities.first_comment.is_some()),
        (Unpublish, capabilities.unpublish),
    ];
    of.into_iter().filter(|(_, promised)| *promised).map(|(feature, _)| feature).collect()
}

#[test]
fn each_feature_of_each_platform_has_a_test() {
    for descriptor in catalogue::all() {
        let of = |(platform, ..): &&PlatformTests| *platform == descriptor.platform;
        let tested: Vec<Feature> = TESTS.iter().filter(of).flat_map(|(.., tests)| *tests).map(|(f, _)| *f).collect();
        let features: BTreeSet<Feature> = tested.iter().copied().collect();
        assert_eq!(features, promised(&descriptor.capabilities), "{}", descriptor.platform);
        assert_eq!(features.len(), tested.len(), "{} has a feature twice", descriptor.platform);
    }
}

#[test]
fn the_tests_of_the_features_exist() {
    for (platform, file, tests) in TESTS {
        let source = page::read(&format!("tests/{file}.rs"));
        for (feature, name) in *tests {
            assert!(source.contains(&format!("async fn {name}(")), "{platform}: {feature:?}: {file} has no {name}");
        }
    }
}

fn length(rules: CommentRules) -> String {
    let unit = match rules.unit {
        TextUnit::Characters => "characters",
        TextUnit::Graphemes => "graphemes",
        TextUnit::Utf16 => "UTF-16 code units",
        TextUnit::Utf8Bytes => "bytes",
        TextUnit::Weighted => "characters, weighted",
    };
    match rules.max {
        Some(max) if max >= 1_000 => format!("{},{:03} {unit}", max / 1_000, max % 1_000),
        Some(max) => format!("{max} {unit}"),
        None => "yes".to_owned(),
    }
}

fn table() -> String {
    let no = || "–".to_owned();
    let mut table = "| Platform | Thread | First comment | Unpublish |\n|---|---|---|---|\n".to_owned();
    for descriptor in catalogue::all() {
        let capabilities = &descriptor.capabilities;
        let thread = capabilities.thread.map_or_else(no, |rules| format!("{} parts", rules.max_parts));
        let comment = capabilities.first_comment.map_or_else(no, length);
        let unpublish = if capabilities.unpublish { "yes".to_owned() } else { no() };
        table += &format!("| {} | {thread} | {comment} | {unpublish} |\n", descriptor.name);
    }
    table
}

#[test]
fn the_table_of_features_is_up_to_date() {
    page::assert_sections("docs/platforms.md", "platforms/features", &[("features", table())]);
}
