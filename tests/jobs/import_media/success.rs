//! A successful import, step by step.

use serde_json::json;

use super::*;
use crate::support::fake_platform::Gate;
use crate::support::images;
use crate::support::jobs::worker_on_both;
use crate::support::source::{SourceResponse, ok, redirect};

worker_on_both!(
    an_image_is_fetched_and_stored,
    the_file_name_comes_from_the_final_url,
    identical_bytes_of_two_imports_are_stored_once,
    a_busy_brand_does_not_block_other_imports,
);

async fn an_image_is_fetched_and_stored(w: TestWorker) {
    listen(&w).await;
    let gate = Gate::new();
    let source = Source::with_responses([SourceResponse::SendAfterGate(gate.clone(), ok(&images::png(30, 20)))]).await;
    let id = import_from(&w, &source).await;
    assert_eq!(import_status(&w, id).await, (Status::Pending, None));
    let running = w.start_until(&gate, w.notified_job()).await;
    assert_eq!(import_status(&w, id).await, (Status::Processing, None));
    assert_eq!(w.count_rows("files").await, 0);
    w.advance(1);
    gate.let_through();
    assert!(running.await.unwrap());

    let import = find_import(&w, id).await;
    assert_eq!((import.status, &import.error, import.updated_at), (Status::Completed, &None, w.now()));
    let [asset] = &assets(&w).await[..] else { panic!("one asset") };
    assert_eq!((import.media_id, asset.asset_type), (Some(asset.id), AssetType::Logo));
    assert_eq!((asset.width, asset.height, asset.mime_type.as_str()), (30, 20, "image/png"));
    assert_eq!((asset.filename.as_str(), asset.alt_text.as_deref()), ("loaf.png", Some("A loaf")));
    assert_eq!(asset.source_url, Some(source.url("/loaf.png")));
    let stored_bytes = library(&w).storage().read(&asset.key).await.unwrap().expect("its bytes are stored");
    assert_eq!(stored_bytes.len() as i64, asset.size_bytes);
    let data = json!({ "job_id": id, "brand_id": w.world.brand, "media_id": asset.id, "error": null });
    assert_eq!(emitted_events(&w).await, [("media.completed".to_owned(), data)]);
    assert_eq!(
        (job_status(&w, id).await, job(&w, id).await.trace.as_deref()),
        ((JobState::Done, 1), Some("request-1"))
    );
    assert_eq!(w.count_rows("jobs WHERE kind = 'deliver_webhook' AND trace = 'request-1'").await, 1);
    assert_completed_once(&w, id).await;
}

async fn the_file_name_comes_from_the_final_url(w: TestWorker) {
    let source = Source::with_responses([
        SourceResponse::Send(redirect("/new/f%C3%BCr%2Fdich.jpg?x=y")),
        SourceResponse::Send(ok(&images::png(3, 2))),
    ]);
    let source = source.await;
    import(&w, &source.url("/old.gif?name=z.png#a")).await;
    run(&w).await;
    let [asset] = &assets(&w).await[..] else { panic!("one asset") };
    assert_eq!(asset.filename, "dich.jpg", "without folders, whatever the image type");
    assert_eq!(asset.source_url, Some(source.url("/old.gif?name=z.png#a")), "as submitted");
    source.set_responses([SourceResponse::Send(ok(&images::gif(3, 2)))]);
    import(&w, &source.url("/")).await;
    run(&w).await;
    assert_eq!(assets(&w).await[1].filename, "image.gif");
}

async fn identical_bytes_of_two_imports_are_stored_once(w: TestWorker) {
    let source = Source::with(ok(&images::jpeg(40, 40))).await;
    let (one, other) = (import_from(&w, &source).await, import_from(&w, &source).await);
    run(&w).await;
    assert_eq!(
        (find_import(&w, one).await.status, find_import(&w, other).await.status),
        (Status::Completed, Status::Completed)
    );
    assert_eq!((assets(&w).await.len(), w.stored_files().len()), (2, 2));
    assert_no_leftovers(&w).await;
}

async fn a_busy_brand_does_not_block_other_imports(w: TestWorker) {
    w.leaves_jobs();
    let source = Source::with(ok(&images::png(3, 2))).await;
    for _ in 0..6 {
        import_from(&w, &source).await;
    }
    let claimed = w.claim(&w.s.notifier.take(), "a worker").await;
    assert_eq!(claimed.len(), 4);
    assert_eq!(w.count_rows("jobs WHERE waiting").await, 2);
    assert!(claimed.iter().all(|job| job.lane == Some(format!("brand:{}", w.world.brand))));
}
