//! A video from its upload, which is interrupted and continues after a reload, to its post on the sandbox. And several
//! files that are dropped on the page.

use serde_json::json;

use super::console::{connect_sandbox, sign_in};
use super::driver::Driver;
use crate::support::client::until;
use crate::support::images;
use crate::support::process::Installation;
use crate::support::videos::{VideoSpec, mp4};

/// The size of a part.
const PART: u64 = 8 * 1024 * 1024;

/// Loses the second part that the page sends, and lets the third one hang.
const INTERRUPT: &str = "
    const send = XMLHttpRequest.prototype.send;
    window.parts = 0;
    XMLHttpRequest.prototype.send = function (body) {
        if (!(body instanceof Blob)) return send.call(this, body);
        window.parts += 1;
        if (window.parts === 1) send.call(this, body);
        if (window.parts === 2) setTimeout(() => this.dispatchEvent(new ProgressEvent('error')));
    };";

/// Counts the bytes of the parts that the page sends.
const COUNT: &str = "
    const send = XMLHttpRequest.prototype.send;
    window.bytes = 0;
    XMLHttpRequest.prototype.send = function (body) {
        if (body instanceof Blob) window.bytes += body.size;
        send.call(this, body);
    };";

/// Drops files on the page, each with its name and its bytes.
const DROP: &str = "
    ((files) => {
        const dataTransfer = new DataTransfer();
        for (const [name, bytes] of files) {
            dataTransfer.items.add(new File([new Uint8Array(bytes)], name, { type: 'image/png' }));
        }
        document.body.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
    })";

async fn test_video(crier: Installation) {
    let Some(browser) = Driver::start_on(&crier).await else { return };
    sign_in(&browser, &crier, "owner@localhost").await;
    if browser.path().await == "/brands/new" {
        browser.fill("name", "My brand").await;
        browser.press("Create").await;
    }
    connect_sandbox(&browser, "demo").await;
    an_interrupted_upload_continues_after_a_reload(&browser).await;
    dropped_files_are_uploaded(&browser).await;
    a_video_is_published(&browser, &crier).await;
    browser.quit().await;
}

async fn an_interrupted_upload_continues_after_a_reload(browser: &Driver) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("oven.mp4");
    let bytes = mp4(VideoSpec { data: 20_000_000, ..VideoSpec::default() });
    std::fs::write(&file, &bytes).unwrap();
    let (file, size) = (file.display().to_string(), u64::try_from(bytes.len()).unwrap());

    browser.open("/brands/1/media").await;
    browser.script(INTERRUPT).await;
    browser.fill("file", &file).await;
    browser.toggle("Upload").await;
    until("the page retries after the lost part", || async {
        (browser.script("return window.parts").await == json!(3)).then_some(())
    })
    .await;
    let percent = PART * 100 / size;
    browser.wait_for_text(&format!("{percent}%")).await;
    browser.toggle("Pause").await;
    browser.wait_for_text("Paused").await;
    browser.save_screenshots("media-upload").await;

    browser.open("/brands/1/media").await;
    browser.wait_for_text("Choose the file again to continue.").await;
    until("the page shows what the server has", || async {
        let value = browser.script("return document.querySelector('[data-uploads] progress').value").await;
        (value == json!(percent)).then_some(())
    })
    .await;
    browser.script(COUNT).await;
    browser.fill("file", &file).await;
    browser.toggle("Upload").await;
    browser.wait_for_text("Uploaded").await;
    assert_eq!(browser.script("return window.bytes").await, json!(size - PART), "only the rest is sent");
    until("the library shows the video", || async {
        let count = browser.script("return document.querySelectorAll('#library video').length").await;
        (count == json!(1)).then_some(())
    })
    .await;
    browser.save_screenshots("media-video").await;
    browser.open("/brands/1/media").await;
    browser.assert_not_shown("Choose the file again").await;
    browser.open("/brands/1/media/1").await;
    browser.wait_for_text("Ready for streaming").await;
    browser.save_screenshots("media-video-item").await;
}

async fn dropped_files_are_uploaded(browser: &Driver) {
    browser.open("/brands/1/media").await;
    let files = json!([["loaf.png", images::png(20, 20)], ["roll.png", images::png(21, 21)]]);
    browser.script(&format!("{DROP}({files})")).await;
    until("the library shows both files", || async {
        let library = browser.script("return document.getElementById('library').textContent").await;
        let has = |name: &str| library.as_str().is_some_and(|text| text.contains(name));
        (has("loaf.png") && has("roll.png")).then_some(())
    })
    .await;
}

async fn a_video_is_published(browser: &Driver, crier: &Installation) {
    browser.open("/brands/1/posts/new").await;
    // The only account is chosen.
    browser.fill("content", "The oven is hot").await;
    browser.select("oven.mp4").await;
    until("the preview shows the video", || async {
        let is_shown = browser.script("return document.querySelector('#check .video') !== null").await;
        (is_shown == json!(true)).then_some(())
    })
    .await;
    browser.save_screenshots("composer-video").await;
    browser.press("Publish now").await;
    until("the video is published", || async {
        let page = crier.page("demo").await;
        (page.contains("The oven is hot") && page.contains("<video")).then_some(())
    })
    .await;
    browser.open("/sandbox/demo").await;
    // The content of the frames is arbitrary, so the browser plays the video without showing something.
    until("the browser reads the video", || async {
        (browser.script("return document.querySelector('video').duration").await == json!(5)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_video_is_uploaded_and_published_in_a_browser_embedded() {
    test_video(Installation::embedded().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn a_video_is_uploaded_and_published_in_a_browser_split() {
    test_video(Installation::split().await).await;
}
