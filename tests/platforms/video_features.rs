//! For each platform with videos, the tests of how Crier hands them over, and of what can go wrong on the way.

use crier_domain::catalogue;
use crier_domain::platform::Platform;

use Covered::{ByTests, Inapplicable};

use crate::support::page;

/// How an aspect is covered. A test is named by its file in `tests`, without `platforms/`.
enum Covered {
    ByTests(&'static [&'static str]),
    /// The platform does not have it, with the reason.
    Inapplicable(&'static str),
}

struct VideoTests {
    platform: Platform,
    /// The file is sent with one call, or in parts, or is downloaded by the platform.
    upload: Covered,
    /// An upload continues after a failure, also in another process.
    resume: Covered,
    /// The platform processes the file before it publishes the post, or after.
    processing: Covered,
    rejected_file: Covered,
    /// The response to a call is lost.
    cut_response: Covered,
    /// A quota or a rate limit.
    quota: Covered,
}

const PART_OF_THE_CALL: Covered = Inapplicable("the call that publishes the post has the file");

const TESTS: &[VideoTests] = &[
    VideoTests {
        platform: Platform::Telegram,
        upload: ByTests(&["telegram_video::a_video_is_sent_in_one_call_with_its_caption"]),
        resume: PART_OF_THE_CALL,
        processing: Inapplicable("the message exists with the response"),
        rejected_file: ByTests(&["telegram_video::a_rejected_file_is_invalid_content"]),
        cut_response: ByTests(&["telegram_video::a_cut_response_and_a_server_error_leave_the_outcome_unknown"]),
        quota: ByTests(&["telegram_video::a_rate_limit_returns_its_retry_time"]),
    },
    VideoTests {
        platform: Platform::Bluesky,
        upload: ByTests(&[
            "bluesky_video::a_small_video_is_sent_in_one_request_and_embedded",
            "bluesky_video::a_large_video_is_sent_in_parts",
        ]),
        resume: ByTests(&["bluesky_video::an_upload_resumes_at_the_failed_part_in_another_process"]),
        processing: ByTests(&["bluesky_video::a_video_is_pending_while_it_is_processed"]),
        rejected_file: ByTests(&["bluesky_video::a_rejected_file_is_permanent"]),
        cut_response: ByTests(&["bluesky_video::a_cut_response_to_a_part_sends_only_that_part_again"]),
        quota: ByTests(&["bluesky_video::a_limit_of_the_account_delays_the_upload"]),
    },
    VideoTests {
        platform: Platform::Wordpress,
        upload: ByTests(&["wordpress_video::a_video_is_uploaded_raw_and_shown_in_a_block"]),
        resume: ByTests(&["wordpress_video::an_upload_resumes_at_the_cover_in_another_process"]),
        processing: Inapplicable("the site stores the file as it is"),
        rejected_file: ByTests(&["wordpress_video::a_rejected_file_and_a_full_site_are_permanent"]),
        cut_response: ByTests(&["wordpress_video::a_cut_response_does_not_upload_the_video_twice"]),
        quota: ByTests(&["wordpress_video::a_limit_or_a_fault_of_the_site_delays_the_video"]),
    },
    VideoTests {
        platform: Platform::Sandbox,
        upload: ByTests(&["jobs/sandbox::a_video_is_published_only_after_it_was_received"]),
        resume: ByTests(&["faults/video::repeated_kills_publish_every_video_once"]),
        processing: ByTests(&[
            "jobs/sandbox::the_slow_video_keyword_waits_a_second",
            "faults/video::a_kill_while_a_video_is_processed_publishes_it_once",
        ]),
        rejected_file: ByTests(&["jobs/sandbox::the_fail_keyword_is_final"]),
        cut_response: Inapplicable("its calls are transactions in Crier's database"),
        quota: ByTests(&["jobs/sandbox::the_limit_keyword_pauses_the_account_for_five_seconds"]),
    },
    VideoTests {
        platform: Platform::Mastodon,
        upload: ByTests(&["mastodon_video::a_video_goes_out_with_its_description_and_its_cover_after_processing"]),
        resume: ByTests(&["mastodon_video::another_process_waits_for_the_stored_upload"]),
        processing: ByTests(&[
            "mastodon_video::another_process_waits_for_the_stored_upload",
            "mastodon_video::a_video_that_is_ready_is_not_waited_for",
        ]),
        rejected_file: ByTests(&["mastodon_video::a_rejected_file_is_permanent_with_the_servers_reason"]),
        cut_response: ByTests(&["mastodon_video::a_cut_response_uploads_the_video_again_and_publishes_once"]),
        quota: ByTests(&["mastodon_video::the_limit_of_uploads_delays_the_video"]),
    },
    VideoTests {
        platform: Platform::Facebook,
        upload: ByTests(&[
            "facebook_video::a_reel_is_uploaded_in_one_call_and_published_with_its_texts",
            "facebook_video::a_video_for_the_feed_is_downloaded_with_its_texts_and_cover",
        ]),
        resume: ByTests(&[
            "facebook_video::an_upload_resumes_at_the_position_that_facebook_states_also_in_another_process",
        ]),
        processing: ByTests(&["facebook_video::the_processing_is_waited_for_and_may_reject_the_video"]),
        rejected_file: ByTests(&[
            "facebook_video::a_rejected_file_or_account_is_final",
            "facebook_video::a_video_for_the_feed_that_facebook_cannot_read_is_rejected_or_retried",
        ]),
        cut_response: ByTests(&[
            "facebook_video::a_lost_response_to_the_last_bytes_is_recovered_by_the_state",
            "facebook_video::a_lost_response_to_the_publishing_call_is_resolved_by_the_state_of_the_video",
            "facebook_video::a_video_for_the_feed_whose_response_was_lost_is_found_by_its_text",
        ]),
        quota: ByTests(&["facebook_video::a_limit_keeps_the_progress"]),
    },
    VideoTests {
        platform: Platform::Instagram,
        upload: ByTests(&["instagram_video::a_single_video_is_a_reel_that_instagram_downloads"]),
        resume: ByTests(&["instagram_video::a_download_that_failed_is_retried_with_a_new_container"]),
        processing: ByTests(&["instagram_video::the_processing_of_a_video_is_waited_for"]),
        rejected_file: ByTests(&["instagram_video::a_video_that_instagram_does_not_accept_is_final"]),
        cut_response: ByTests(&["instagram_video::a_cut_response_is_resolved_by_the_status_of_the_container"]),
        quota: ByTests(&["instagram_video::a_quota_and_a_revoked_token_keep_the_containers"]),
    },
    VideoTests {
        platform: Platform::Threads,
        upload: ByTests(&["threads_video::a_single_video_is_one_container_with_its_alt_text"]),
        resume: ByTests(&["threads_video::a_video_that_threads_could_not_download_gets_a_new_container_a_few_times"]),
        // The next tests of Instagram also run for Threads.
        processing: ByTests(&["instagram_video::the_processing_of_a_video_is_waited_for"]),
        rejected_file: ByTests(&["threads_video::a_video_that_threads_does_not_accept_is_final"]),
        cut_response: ByTests(&["instagram_video::a_cut_response_is_resolved_by_the_status_of_the_container"]),
        quota: ByTests(&["instagram_video::a_quota_and_a_revoked_token_keep_the_containers"]),
    },
    VideoTests {
        platform: Platform::Twitter,
        upload: ByTests(&[
            "twitter_video::a_video_is_uploaded_processed_and_posted",
            "twitter_video::a_large_video_is_sent_in_segments_of_4_mib",
        ]),
        resume: ByTests(&["twitter_video::an_upload_resumes_at_the_failed_segment_also_in_another_process"]),
        processing: ByTests(&[
            "twitter_video::a_video_is_uploaded_processed_and_posted",
            "twitter_video::a_video_that_x_cannot_process_is_rejected_and_the_message_says_that_x_gives_no_reason",
        ]),
        rejected_file: ByTests(&["twitter_video::a_rejected_file_is_invalid_content"]),
        cut_response: ByTests(&[
            "twitter_video::a_cut_response_repeats_the_step",
            "twitter_video::a_lost_response_to_the_last_call_is_recovered_by_the_state",
            "twitter_video::a_lost_response_to_the_post_leaves_its_outcome_unknown",
        ]),
        quota: ByTests(&["twitter_video::a_rate_limit_keeps_the_progress_and_returns_its_reset"]),
    },
    VideoTests {
        platform: Platform::Linkedin,
        upload: ByTests(&[
            "linkedin_video::a_small_video_is_one_part_and_is_posted_with_its_title",
            "linkedin_video::a_page_uploads_parts_and_a_cover_and_waits_for_the_processing",
        ]),
        resume: ByTests(&["linkedin_video::an_upload_resumes_at_the_failed_part_also_in_another_process"]),
        processing: ByTests(&[
            "linkedin_video::a_page_uploads_parts_and_a_cover_and_waits_for_the_processing",
            "linkedin_video::a_video_that_linkedin_cannot_process_is_rejected_with_its_reason",
        ]),
        rejected_file: ByTests(&["linkedin_video::a_rejected_file_and_a_rejected_cover_are_invalid_content"]),
        cut_response: ByTests(&[
            "linkedin_video::a_cut_response_repeats_the_part",
            "linkedin_video::a_lost_response_to_the_last_call_is_recovered_by_the_state",
            "linkedin_video::a_lost_response_to_the_post_leaves_its_outcome_unknown",
        ]),
        quota: ByTests(&["linkedin_video::a_daily_limit_keeps_the_progress_until_midnight"]),
    },
    VideoTests {
        platform: Platform::Pinterest,
        upload: ByTests(&["pinterest_video::a_video_is_sent_in_a_form_processed_and_pinned"]),
        resume: ByTests(&["pinterest_video::an_upload_resumes_at_the_failed_step_also_in_another_process"]),
        processing: ByTests(&[
            "pinterest_video::a_video_is_sent_in_a_form_processed_and_pinned",
            "pinterest_video::a_video_that_pinterest_cannot_process_is_invalid_content",
        ]),
        rejected_file: ByTests(&["pinterest_video::a_rejected_file_is_invalid_content"]),
        cut_response: ByTests(&[
            "pinterest_video::a_cut_response_repeats_the_step",
            "pinterest_video::a_lost_response_to_the_pin_is_found_again",
        ]),
        quota: ByTests(&["pinterest_video::a_rate_limit_keeps_the_progress"]),
    },
    VideoTests {
        platform: Platform::Tiktok,
        upload: ByTests(&[
            "tiktok_video::a_small_video_is_one_chunk_that_publishing_sends",
            "tiktok_video::a_large_video_is_sent_in_chunks_of_10_mb_and_the_last_one_has_the_rest",
        ]),
        resume: ByTests(&["tiktok_video::an_upload_resumes_at_the_failed_chunk_also_in_another_process"]),
        processing: ByTests(&["tiktok_video::processing_is_waited_for"]),
        rejected_file: ByTests(&[
            "tiktok_video::a_rejected_file_is_invalid_content",
            "tiktok_video::a_file_that_is_rejected_with_its_last_chunk_is_invalid_content",
        ]),
        cut_response: ByTests(&[
            "tiktok_video::a_lost_response_to_a_chunk_continues_after_it",
            "tiktok_video::a_lost_response_to_the_last_chunk_is_recovered_by_the_status",
        ]),
        quota: ByTests(&["tiktok_video::a_cap_on_posts_waits_and_then_uploads_again"]),
    },
    VideoTests {
        platform: Platform::Reddit,
        upload: ByTests(&["reddit_video::a_video_is_uploaded_with_its_cover_and_found_after_it_was_submitted"]),
        resume: ByTests(&["reddit_video::an_upload_resumes_at_the_video_also_in_another_process"]),
        processing: ByTests(&["reddit_video::a_video_in_processing_is_searched_for_and_never_submitted_again"]),
        rejected_file: ByTests(&["reddit_video::a_rejected_file_is_invalid_content"]),
        cut_response: ByTests(&[
            "reddit_video::a_cut_response_repeats_the_step",
            "reddit_video::a_lost_response_to_the_submission_is_found_again",
        ]),
        quota: ByTests(&["reddit_video::a_rate_limit_keeps_the_progress"]),
    },
    VideoTests {
        platform: Platform::Tumblr,
        upload: ByTests(&["tumblr_video::a_video_is_a_part_of_the_publishing_request"]),
        resume: PART_OF_THE_CALL,
        processing: ByTests(&[
            "tumblr_video::an_earlier_video_that_is_still_transcoded_delays_the_post",
            "tumblr_video::a_missing_post_is_absent_when_its_video_must_have_been_transcoded",
        ]),
        rejected_file: ByTests(&["tumblr_video::a_rejected_file_is_permanent_and_a_failed_upload_is_not"]),
        cut_response: ByTests(&["tumblr_video::a_cut_response_leaves_the_outcome_unknown_until_the_post_is_found"]),
        quota: ByTests(&["tumblr_video::the_daily_limit_of_videos_delays_the_post"]),
    },
    VideoTests {
        platform: Platform::Youtube,
        upload: ByTests(&[
            "youtube::a_video_is_uploaded_and_exists_with_its_last_chunk",
            "youtube::a_large_video_is_sent_in_chunks_of_8_mib",
        ]),
        resume: ByTests(&["youtube::an_upload_resumes_at_the_stored_byte_also_in_another_process"]),
        processing: ByTests(&[
            "youtube::a_complete_file_that_is_no_video_yet_is_waited_for",
            "youtube_metrics::a_video_that_is_rejected_while_it_is_processed_is_reported",
        ]),
        rejected_file: ByTests(&[
            "youtube::errors_are_classified",
            "youtube_metrics::a_video_that_is_rejected_while_it_is_processed_is_reported",
        ]),
        cut_response: ByTests(&[
            "youtube::a_lost_response_to_the_last_chunk_is_recovered_by_the_session",
            "youtube::a_partly_stored_last_chunk_is_unknown_until_the_session_is_queried",
        ]),
        quota: ByTests(&[
            "youtube::accounts_of_an_application_share_its_uploads_per_day",
            "youtube::errors_are_classified",
        ]),
    },
];

#[test]
fn each_platform_with_videos_has_its_tests() {
    let with_videos = catalogue::all().iter().filter(|descriptor| descriptor.capabilities.video.is_some());
    let expected: Vec<Platform> = with_videos.map(|descriptor| descriptor.platform).collect();
    let tested: Vec<Platform> = TESTS.iter().map(|tests| tests.platform).collect();
    assert_eq!(tested, expected);
}

#[test]
fn the_tests_of_videos_exist() {
    for tests in TESTS {
        let VideoTests { platform, upload, resume, processing, rejected_file, cut_response, quota } = tests;
        for covered in [upload, resume, processing, rejected_file, cut_response, quota] {
            let names = match covered {
                ByTests(names) => *names,
                Inapplicable(reason) => {
                    assert!(!reason.is_empty(), "{platform}");
                    continue;
                }
            };
            assert!(!names.is_empty(), "{platform}");
            for name in names {
                let (file, function) = name.split_once("::").expect("a file and a function");
                let directory = if file.contains('/') { "tests" } else { "tests/platforms" };
                let source = page::read(&format!("{directory}/{file}.rs"));
                assert!(source.contains(&format!("async fn {function}(")), "{platform}: {name} does not exist");
            }
        }
    }
}
