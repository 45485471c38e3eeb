//! Threads, first comments and unpublishing: the table in `docs/platforms.md`, which is generated from the catalogue, and
//! for each platform the tests that what the catalogue promises works, and of its errors.

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

/// A test that a feature works, and tests of its errors.
type FeatureTests = (Feature, &'static str, &'static [&'static str]);

/// The tests for a platform: the file in `tests` that has them, and those of each feature.
type PlatformTests = (Platform, &'static str, &'static [FeatureTests]);

const TESTS: &[PlatformTests] = &[
    (
        Platform::Telegram,
        "platforms/telegram_threads",
        &[
            (
                Thread,
                "a_part_of_a_thread_replies_to_the_part_before",
                &["a_part_does_not_reply_to_a_message_of_the_group_before_its_upgrade"],
            ),
            (
                FirstComment,
                "a_comment_replies_to_the_forward_that_is_pinned_in_the_group",
                &["a_comment_waits_for_the_forward", "a_failed_lookup_of_the_forward_publishes_nothing"],
            ),
            (
                Unpublish,
                "unpublishing_deletes_all_messages_of_a_post",
                &["unpublishing_reports_a_missing_right_and_temporary_errors"],
            ),
        ],
    ),
    (
        Platform::Bluesky,
        "platforms/bluesky_threads",
        &[
            (
                Thread,
                "a_thread_is_written_in_one_call",
                &[
                    "a_rate_limit_writes_no_part",
                    "one_invalid_part_keeps_all_parts_from_being_written",
                    "a_thread_with_a_lost_response_is_found_by_its_first_record",
                ],
            ),
            (FirstComment, "a_first_comment_replies_to_its_post", &["a_deleted_post_gets_no_comment"]),
            (Unpublish, "unpublishing_deletes_one_post_and_can_be_repeated", &["a_failed_unpublish_is_classified"]),
        ],
    ),
    (
        Platform::Wordpress,
        "platforms/wordpress_comments",
        &[
            (
                FirstComment,
                "a_first_comment_is_written_below_the_post",
                &[
                    "a_comment_that_the_site_rejects_has_failed",
                    "a_comment_with_a_lost_response_is_found_below_its_post",
                ],
            ),
            (
                Unpublish,
                "posts_and_comments_go_to_the_trash_and_a_deletion_can_be_repeated",
                &["failed_deletions_are_classified"],
            ),
        ],
    ),
    (
        Platform::Woocommerce,
        "platforms/woocommerce",
        &[(
            Unpublish,
            "a_product_goes_to_the_trash_and_a_deletion_can_be_repeated",
            &["failed_deletions_are_classified"],
        )],
    ),
    (
        Platform::Sandbox,
        "jobs/sandbox",
        &[
            (Thread, "parts_and_comments_are_under_their_post", &["keywords_apply_to_each_part"]),
            (FirstComment, "parts_and_comments_are_under_their_post", &["a_reply_to_a_missing_post_is_not_published"]),
            (Unpublish, "unpublishing_removes_a_post_from_the_page", &["only_posts_of_the_own_handle_are_unpublished"]),
        ],
    ),
    (
        Platform::Mastodon,
        "platforms/mastodon_threads",
        &[
            (
                Thread,
                "each_part_replies_to_the_part_before",
                &[
                    "a_deleted_parent_is_recognized",
                    "a_thread_continues_after_a_rate_limit",
                    "reconcile_distinguishes_replies_by_their_parent",
                ],
            ),
            (
                FirstComment,
                "a_first_comment_is_as_visible_as_its_post",
                &["a_failed_lookup_of_the_parent_proves_nothing"],
            ),
            (Unpublish, "unpublishing_deletes_one_post_and_can_be_repeated", &["a_failed_unpublish_is_classified"]),
        ],
    ),
    (
        Platform::Shopify,
        "platforms/shopify",
        &[(Unpublish, "an_article_is_deleted_and_a_deletion_can_be_repeated", &["failed_deletions_are_classified"])],
    ),
    (
        Platform::Facebook,
        "platforms/facebook_comments",
        &[
            (
                FirstComment,
                "a_first_comment_is_published_on_the_post",
                &[
                    "errors_of_a_comment_are_classified",
                    "a_first_comment_with_a_lost_response_is_found_by_text_and_time",
                ],
            ),
            (
                Unpublish,
                "a_post_is_deleted_and_a_second_deletion_succeeds",
                &["a_post_that_cannot_be_deleted_does_not_count_as_deleted"],
            ),
        ],
    ),
    (
        Platform::Instagram,
        "platforms/instagram_comments",
        &[
            (
                FirstComment,
                "a_first_comment_is_published_without_a_container",
                &[
                    "errors_of_a_comment_are_classified",
                    "a_first_comment_with_a_lost_response_is_found_by_text_and_time",
                ],
            ),
            (
                Unpublish,
                "a_post_is_deleted_only_with_the_login_of_facebook",
                &["a_post_that_cannot_be_deleted_does_not_count_as_deleted"],
            ),
        ],
    ),
    (
        Platform::Threads,
        "platforms/threads",
        &[
            (
                Thread,
                "parts_of_a_thread_and_a_comment_are_containers_that_reply",
                &[
                    "a_deleted_parent_is_recognized",
                    "replies_have_a_quota_of_their_own",
                    "a_reply_is_found_by_its_container_or_among_the_replies_to_its_parent",
                ],
            ),
            (
                FirstComment,
                "parts_of_a_thread_and_a_comment_are_containers_that_reply",
                &["a_missing_permission_for_replies_is_named"],
            ),
            (
                Unpublish,
                "a_post_is_deleted_and_a_second_deletion_changes_nothing",
                &["a_failed_deletion_is_classified"],
            ),
        ],
    ),
    (
        Platform::Twitter,
        "platforms/twitter",
        &[
            (
                Thread,
                "parts_of_a_thread_and_a_comment_are_replies",
                &["a_deleted_parent_is_recognized", "a_reply_is_found_among_the_replies_to_its_parent"],
            ),
            (FirstComment, "parts_of_a_thread_and_a_comment_are_replies", &["a_deleted_parent_is_recognized"]),
            (
                Unpublish,
                "a_post_is_deleted_and_a_second_deletion_changes_nothing",
                &["a_failed_deletion_is_classified"],
            ),
        ],
    ),
    (
        Platform::Linkedin,
        "platforms/linkedin_comments",
        &[
            (
                FirstComment,
                "a_first_comment_is_published_in_the_name_of_the_account",
                &[
                    "errors_of_a_comment_are_classified",
                    "a_first_comment_of_a_page_with_a_lost_response_is_found_by_text_and_time",
                ],
            ),
            (
                Unpublish,
                "a_post_is_deleted_and_a_second_deletion_succeeds",
                &["a_missing_permission_is_named_for_users_and_pages"],
            ),
        ],
    ),
    (
        Platform::Pinterest,
        "platforms/pinterest",
        &[(Unpublish, "a_pin_is_deleted_and_a_deletion_can_be_repeated", &["failed_deletions_are_classified"])],
    ),
    (
        Platform::GoogleBusiness,
        "platforms/google_business",
        &[(Unpublish, "a_post_is_deleted_and_a_deletion_can_be_repeated", &["failed_deletions_are_classified"])],
    ),
    (
        Platform::Reddit,
        "platforms/reddit_comments",
        &[
            (
                FirstComment,
                "a_first_comment_is_written_below_the_post",
                &["a_comment_that_reddit_rejects_has_failed", "a_comment_with_a_lost_response_is_found_below_its_post"],
            ),
            (
                Unpublish,
                "posts_and_comments_are_deleted_and_a_deletion_can_be_repeated",
                &["a_deletion_without_the_scope_names_it", "a_deletion_with_a_lost_response_is_repeated"],
            ),
        ],
    ),
    (
        Platform::Tumblr,
        "platforms/tumblr",
        &[(Unpublish, "a_post_is_deleted_and_a_deletion_can_be_repeated", &["failed_deletions_are_classified"])],
    ),
    (
        Platform::Youtube,
        "platforms/youtube",
        &[
            (
                FirstComment,
                "a_first_comment_is_published_below_the_video",
                &["a_comment_needs_its_video_and_the_permission"],
            ),
            (
                Unpublish,
                "videos_and_comments_are_deleted_and_a_deletion_can_be_repeated",
                &["failed_deletions_are_classified"],
            ),
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
        let tested: Vec<Feature> = TESTS.iter().filter(of).flat_map(|(.., tests)| *tests).map(|(f, ..)| *f).collect();
        let features: BTreeSet<Feature> = tested.iter().copied().collect();
        assert_eq!(features, promised(&descriptor.capabilities), "{}", descriptor.platform);
        assert_eq!(features.len(), tested.len(), "{} has a feature twice", descriptor.platform);
    }
}

#[test]
fn the_tests_of_the_features_exist() {
    for (platform, file, tests) in TESTS {
        let source = page::read(&format!("tests/{file}.rs"));
        for (feature, works, errors) in *tests {
            assert!(!errors.is_empty(), "{platform}: {feature:?} has no test of its errors");
            for name in [works].into_iter().chain(*errors) {
                assert!(source.contains(&format!("async fn {name}(")), "{platform}: {feature:?}: {file} has no {name}");
            }
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
