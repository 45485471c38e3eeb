use super::*;

fn error_text(body: &str, make: fn(String) -> object_store::Error) -> String {
    StorageError::of(make(format!(
        "Error performing PUT http://s3/b/k in 1s - Server returned non-2xx status code: 403: {body}"
    )))
    .to_string()
}

#[test]
fn error_messages_name_variables_but_no_credentials() {
    let body = "<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIDSECRET</AWSAccessKeyId><StringToSign>AWS4 AKIDSECRET</StringToSign></Error>";
    let denied = |source: String| object_store::Error::PermissionDenied { path: "k".into(), source: source.into() };
    let other = |source: String| object_store::Error::Generic { store: "S3", source: source.into() };
    for text in [error_text(body, denied), error_text(body, other)] {
        assert!(!text.contains("AKIDSECRET") && text.contains("SignatureDoesNotMatch"), "{text}");
    }
    assert!(error_text(body, denied).contains("AWS_SECRET_ACCESS_KEY"));
}

#[test]
fn a_missing_bucket_is_not_reported_as_a_missing_file() {
    let missing = |body: &str| object_store::Error::NotFound { path: "k".into(), source: body.to_owned().into() };
    assert!(error::is_missing(&missing("404")) && error::is_missing(&missing("<Code>NoSuchKey</Code>")));
    assert!(!error::is_missing(&missing("<Error><Code>NoSuchBucket</Code></Error>")));
    let text = StorageError::of(missing("<Code>NoSuchBucket</Code>")).to_string();
    assert!(text.contains("CRIER_STORAGE_URL"), "{text}");
}

#[test]
fn an_unwritable_directory_is_rejected_with_a_clear_error() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let inside = config::StorageConfig::Directory(file.path().join("files"));
    let text = Storage::open(&inside).expect_err("a file is no directory").to_string();
    assert!(text.contains("cannot store files in") && text.contains(&file.path().display().to_string()), "{text}");
}

#[test]
fn a_directory_keeps_the_id_of_its_marker() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(marker::read(&dir.path().join("missing")).expect("no error"), None);
    assert_eq!(marker::read(dir.path()).expect("no error"), None);
    let id = marker::create(dir.path()).expect("a marker");
    assert_eq!(marker::create(dir.path()).expect("a marker"), id);
    assert_eq!(marker::read(dir.path()).expect("a marker"), Some(id));
    std::fs::write(dir.path().join(marker::NAME), "").expect("a file");
    assert_eq!(marker::read(dir.path()).expect("no error"), None, "it was not written completely");
    assert!(marker::create(dir.path()).is_err(), "a marker is never replaced");
}
