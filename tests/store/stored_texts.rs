//! How much texts count as storage usage of a workspace: triggers update the count when texts are written.

use crier_domain::plan::StorageUsage;
use crier_domain::post::{FirstComment, FirstCommentOverride, PostStatus, TargetOverride, ThreadPart};
use crier_store::files::{self, NewFile};
use crier_store::{posts, targets};

use crate::support::store::{TestStore, World, new_post, on_both};

on_both![
    texts_count_until_they_are_deleted,
    threads_and_comments_count,
    small_texts_count_on_average,
    texts_reduce_the_space_for_files,
];

/// The count that the rows must have, by the rule of the triggers.
const EXPECTED: &str = "
    SELECT CAST(coalesce(sum((512 + bytes + id * 2531 % 4096) / 4096 * 4096), 0) AS bigint)
    FROM (
        SELECT id,
            octet_length(content) + octet_length(CAST(thread AS text))
            + coalesce(octet_length(CAST(first_comment AS text)), 0) AS bytes
        FROM posts
        WHERE deleted_at IS NULL
        UNION ALL
        SELECT t.id,
            coalesce(octet_length(t.content), 0) + coalesce(octet_length(t.signature), 0)
            + octet_length(CAST(t.options AS text)) + coalesce(octet_length(CAST(t.thread AS text)), 0)
            + coalesce(octet_length(CAST(t.first_comment AS text)), 0)
        FROM post_targets t
        JOIN posts p ON p.id = t.post_id
        WHERE p.deleted_at IS NULL
        UNION ALL
        SELECT id, octet_length(body)
        FROM messages
        UNION ALL
        SELECT id, octet_length(filename) + coalesce(octet_length(alt_text), 0) + coalesce(octet_length(source_url), 0)
            + octet_length(search) - 512
        FROM media
        UNION ALL
        SELECT id, octet_length(source_url) + coalesce(octet_length(alt_text), 0)
        FROM media_jobs
    ) counted";

/// Asserts that the count agrees with the rows; returns it.
async fn count_texts(s: &TestStore, w: World) -> i64 {
    let texts = files::usage(&mut s.conn().await, w.workspace).await.unwrap().texts;
    assert_eq!(texts, s.number(EXPECTED).await);
    texts
}

async fn texts_count_until_they_are_deleted(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    assert_eq!(count_texts(&s, w).await, 0);
    let (id, target_ids) = s.post(w, &[1, 2]).await;
    let mut post = posts::find_any(&mut s.conn().await, id).await.unwrap().unwrap();
    post.content = "ä".repeat(50_000);
    s.write(async |tx| posts::update(tx, &post).await).await;
    let long = count_texts(&s, w).await;
    assert!((100_000..110_000).contains(&long), "{long}: bytes count, not characters");
    let own = TargetOverride {
        content: Some("x".repeat(20_000)),
        signature: Some("x".repeat(10_000)),
        ..TargetOverride::default()
    };
    s.write(async |tx| targets::set_overrides(tx, target_ids[0], &own).await).await;
    let with_override = count_texts(&s, w).await;
    assert!((25_000..36_000).contains(&(with_override - long)), "{with_override}");
    post.content = "short".to_owned();
    s.write(async |tx| posts::update(tx, &post).await).await;
    assert!(count_texts(&s, w).await < 45_000);
    s.write(async |tx| targets::delete(tx, target_ids[0]).await).await;
    assert!(count_texts(&s, w).await <= 3 * 4096);
    // A deletion frees the space immediately, before the rows are purged.
    post.content = "y".repeat(200_000);
    s.write(async |tx| posts::update(tx, &post).await).await;
    s.write(async |tx| targets::set_overrides(tx, target_ids[1], &own).await).await;
    assert!(count_texts(&s, w).await > 220_000);
    s.write(async |tx| posts::delete(tx, id).await).await;
    assert_eq!(count_texts(&s, w).await, 0);
    s.write(async |tx| posts::purge(tx, 10).await).await;
    assert_eq!((count_texts(&s, w).await, s.number("SELECT count(*) FROM post_targets").await), (0, 0));
    let of_other = files::usage(&mut s.conn().await, other.workspace).await.unwrap();
    assert_eq!(of_other, StorageUsage::default(), "the other workspace wrote nothing");
}

async fn threads_and_comments_count(s: TestStore) {
    let w = s.create_world().await;
    let (id, target_ids) = s.post(w, &[1]).await;
    let thread = |bytes: usize| vec![ThreadPart { content: "x".repeat(bytes), media: vec![7] }];
    let comment = |bytes: usize| FirstComment { content: "x".repeat(bytes), delay_seconds: 0 };
    let mut post = posts::find_any(&mut s.conn().await, id).await.unwrap().unwrap();
    (post.thread, post.first_comment) = (thread(40_000), Some(comment(20_000)));
    s.write(async |tx| posts::update(tx, &post).await).await;
    let of_post = count_texts(&s, w).await;
    assert!((56_000..70_000).contains(&of_post), "{of_post}");
    let own = TargetOverride {
        thread: Some(thread(30_000)),
        first_comment: Some(FirstCommentOverride::Own(comment(10_000))),
        ..TargetOverride::default()
    };
    s.write(async |tx| targets::set_overrides(tx, target_ids[0], &own).await).await;
    let with_override = count_texts(&s, w).await;
    assert!((32_000..46_000).contains(&(with_override - of_post)), "{with_override}");
    (post.thread, post.first_comment) = (Vec::new(), None);
    s.write(async |tx| posts::update(tx, &post).await).await;
    assert!(count_texts(&s, w).await < 50_000);
    s.write(async |tx| posts::delete(tx, id).await).await;
    assert_eq!(count_texts(&s, w).await, 0);
}

/// Few small texts change the count, but the sum is right on average.
async fn small_texts_count_on_average(s: TestStore) {
    let w = s.create_world().await;
    let mut draft = new_post(w, PostStatus::Draft);
    draft.content = "x".repeat(188);
    let mut ids = Vec::new();
    for _ in 0..200 {
        ids.push(s.write(async |tx| posts::insert(tx, &draft).await).await);
    }
    let sum = count_texts(&s, w).await;
    assert!((sum - 200 * 700).abs() <= 2 * 4096, "{sum}");
    for id in &ids[..100] {
        s.write(async |tx| posts::delete(tx, *id).await).await;
    }
    let remaining = count_texts(&s, w).await;
    assert!((remaining - 100 * 700).abs() <= 2 * 4096, "{remaining}");
}

async fn texts_reduce_the_space_for_files(s: TestStore) {
    let w = s.create_world().await;
    let mut draft = new_post(w, PostStatus::Draft);
    draft.content = "x".repeat(60_000);
    let id = s.write(async |tx| posts::insert(tx, &draft).await).await;
    let texts = count_texts(&s, w).await;
    let file = |n: u8, size_bytes: i64| NewFile {
        workspace_id: w.workspace,
        brand_id: w.brand,
        key: format!("{n}.png"),
        thumbnail_key: Some(format!("{n}-thumb.png")),
        sha256: [n; 32],
        mime_type: "image/png",
        size_bytes,
        width: 1,
        height: 1,
        video: None,
    };
    let cap = u64::try_from(texts + 1_000).unwrap();
    let reserve = async |new: NewFile| {
        let mut tx = s.begin().await.unwrap();
        let reserved = files::reserve(&mut tx, &new, Some(cap)).await.unwrap().is_some();
        if reserved {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        reserved
    };
    assert!(!reserve(file(1, 1_001)).await && reserve(file(1, 1_000)).await);
    assert!(!reserve(file(2, 1_000)).await);
    s.write(async |tx| posts::delete(tx, id).await).await;
    assert!(reserve(file(2, 1_000)).await);
}
