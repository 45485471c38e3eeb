//! The storage of media and report files.

use std::path::{Path, PathBuf};

use secrecy::SecretString;
use url::Url;

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::values;

const URL: Key = Key::new(
    "STORAGE_URL",
    "The storage of media and report files: `file:///directory`, or `s3://bucket/prefix` with AWS_ACCESS_KEY_ID, \
     AWS_SECRET_ACCESS_KEY, AWS_REGION and, for providers other than Amazon, AWS_ENDPOINT_URL.",
    DefaultValue::Text("`files` in the data directory"),
    "s3://my-bucket/crier",
);
const DISK_RESERVE: Key = Key::new(
    "DISK_RESERVE_MIB",
    "The free disk space, in MiB, that is reserved for publishing, deletions and cleanup. If less is free, uploads and \
     new records are rejected. 0 means no reserve.",
    DefaultValue::Value("512"),
    "512",
);
pub(super) const KEYS: &[Key] = &[URL, DISK_RESERVE];

/// The configured storage.
#[derive(Clone, Debug)]
pub enum StorageConfig {
    Directory(PathBuf),
    S3(S3Config),
}

/// A bucket and its credentials.
#[derive(Clone, Debug)]
pub struct S3Config {
    pub bucket: String,
    /// Without leading and trailing slashes; empty if there is no prefix.
    pub prefix: String,
    pub region: String,
    /// The URL of a provider other than Amazon. Its URLs are path-style, and it may be plain http.
    pub endpoint: Option<String>,
    pub access_key_id: String,
    pub secret_access_key: SecretString,
    pub session_token: Option<SecretString>,
}

enum Address {
    Directory(PathBuf),
    Bucket { bucket: String, prefix: String },
}

pub(super) fn read(reader: &mut Reader, data_dir: &Path) -> StorageConfig {
    match reader.optional(&URL, parse) {
        None => StorageConfig::Directory(default_dir(data_dir)),
        Some(Address::Directory(path)) => StorageConfig::Directory(path),
        Some(Address::Bucket { bucket, prefix }) => StorageConfig::S3(s3(reader, bucket, prefix)),
    }
}

pub(super) fn default_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("files")
}

/// Returns the reserve in bytes.
pub(super) fn disk_reserve(reader: &mut Reader) -> u64 {
    let mib = reader.parse(&DISK_RESERVE, |text| values::number(text, 0, 1 << 30));
    u64::try_from(mib).unwrap_or(u64::MAX).saturating_mul(1 << 20)
}

fn s3(reader: &mut Reader, bucket: String, prefix: String) -> S3Config {
    let endpoint = reader.aws("AWS_ENDPOINT_URL").and_then(|text| match values::base_url(&text) {
        Ok(url) => Some(url),
        Err(wrong) => {
            let message = format!("the value {wrong}; use a value such as http://127.0.0.1:9000");
            reader.add_problem("AWS_ENDPOINT_URL".to_owned(), message);
            None
        }
    });
    let region = reader.aws("AWS_REGION").or_else(|| reader.aws("AWS_DEFAULT_REGION"));
    // The region is part of the signature, but only Amazon checks it: any value works elsewhere.
    let region = region.or_else(|| endpoint.is_some().then(|| "us-east-1".to_owned()));
    let access_key_id = reader.aws("AWS_ACCESS_KEY_ID");
    let secret = reader.aws("AWS_SECRET_ACCESS_KEY");
    S3Config {
        bucket,
        prefix,
        region: required(reader, "AWS_REGION", region, "eu-central-1"),
        endpoint,
        access_key_id: required(reader, "AWS_ACCESS_KEY_ID", access_key_id, "AKIAIOSFODNN7EXAMPLE"),
        secret_access_key: required(reader, "AWS_SECRET_ACCESS_KEY", secret, "the secret that was issued with the ID")
            .into(),
        session_token: reader.aws("AWS_SESSION_TOKEN").map(SecretString::from),
    }
}

/// Returns the value of a variable that `s3://` requires, and reports a problem if it is missing.
fn required(reader: &mut Reader, name: &str, value: Option<String>, example: &str) -> String {
    value.unwrap_or_else(|| {
        let message = format!("is not set, and CRIER_STORAGE_URL is s3://…; set it, for example to {example}");
        reader.add_problem(name.to_owned(), message);
        String::new()
    })
}

fn parse(text: &str) -> Result<Address, String> {
    let url = Url::parse(text).map_err(|_| "is neither file:///directory nor s3://bucket".to_owned())?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not contain ? or #".to_owned());
    }
    match url.scheme() {
        "file" => match url.to_file_path() {
            Ok(path) if text.starts_with("file:///") => Ok(Address::Directory(path)),
            _ => Err("must be the full path of a directory, with three slashes after file:".to_owned()),
        },
        "s3" => match url.host_str().filter(|bucket| !bucket.is_empty()) {
            Some(bucket) if url.username().is_empty() && url.port().is_none() => {
                Ok(Address::Bucket { bucket: bucket.to_owned(), prefix: url.path().trim_matches('/').to_owned() })
            }
            _ => Err("must have only a bucket and a prefix after s3://".to_owned()),
        },
        _ => Err("begins with neither file:/// nor s3://".to_owned()),
    }
}
