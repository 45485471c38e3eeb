//! Forms with a file: received as they come, the file into a spool, so that no upload stands in memory.

use std::pin::Pin;

use bytes::Bytes;
use crier_common::media::Spool;
use futures::{Stream, StreamExt, stream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use multer::{Constraints, Field, Multipart, SizeLimit};
use salvo::Request;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::context::UploadedFile;
use crate::error::{ApiError, Code, Result};

/// The part that is the file.
const FILE: &str = "file";
/// What a form may have beside its file: the heads of its parts, and its texts.
const BESIDES: u64 = 64 << 10;
const MOST_PARTS: usize = 32;

/// A form that has arrived whole.
pub struct Form {
    pub texts: Map<String, Value>,
    pub file: Option<UploadedFile>,
    /// Tells two forms apart, whatever their boundary.
    pub digest: Vec<u8>,
}

/// Reads the form; refused as soon as it is known to be too large. Its file may have `most` bytes.
pub async fn read(req: &mut Request, most: u64) -> Result<Form> {
    let announced = req.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|n| n > most + BESIDES) {
        return Err(too_large(most));
    }
    let content_type = req.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let boundary = multer::parse_boundary(&content_type).map_err(|error| match error {
        multer::Error::NoBoundary => broken("its Content-Type names no boundary"),
        _ => ApiError::new(
            Code::UnsupportedMediaType,
            "This endpoint takes a form with a file: send it as `multipart/form-data`.",
        ),
    })?;
    let body = stream::poll_fn(|cx| Pin::new(req.body_mut()).poll_next_unpin(cx))
        .filter_map(async |frame| frame.map(|frame| frame.into_data().ok()).transpose());
    receive(body, boundary, most).await
}

async fn receive<E>(
    body: impl Stream<Item = std::result::Result<Bytes, E>> + Send,
    boundary: String,
    most: u64,
) -> Result<Form>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let limits = Constraints::new().size_limit(SizeLimit::new().whole_stream(most + BESIDES));
    let mut parts = Multipart::with_constraints(Box::pin(body), boundary, limits);
    let mut form = Receiving { most, ..Receiving::default() };
    while let Some(part) = parts.next_field().await.map_err(|error| refused(error, most))? {
        form.take(part).await?;
    }
    Ok(Form { texts: form.texts, file: form.file, digest: form.hash.finalize().to_vec() })
}

#[derive(Default)]
struct Receiving {
    most: u64,
    parts: usize,
    texts: Map<String, Value>,
    text_bytes: u64,
    file: Option<UploadedFile>,
    hash: Sha256,
}

impl Receiving {
    async fn take(&mut self, mut part: Field<'_>) -> Result<()> {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return Err(broken(&format!("it has more than {MOST_PARTS} parts")));
        }
        let name = part.name().unwrap_or_default().to_owned();
        let file_name = part.file_name().map(str::to_owned);
        let content_type = part.headers().get(CONTENT_TYPE).map(|v| v.as_bytes().to_vec());
        for said in [Some(name.as_bytes()), file_name.as_deref().map(str::as_bytes), content_type.as_deref()] {
            self.hash.update(said.map_or(u64::MAX, |s| s.len() as u64).to_be_bytes());
            self.hash.update(said.unwrap_or_default());
        }
        if name == FILE {
            return self.take_file(&mut part, file_name).await;
        }
        let text = self.take_text(&mut part).await?;
        // What is no text of ours is counted and dropped, as unknown fields are.
        if file_name.is_none() {
            let text = String::from_utf8(text).map_err(|_| broken("its texts are not UTF-8"))?;
            self.texts.insert(name, Value::String(text));
        }
        Ok(())
    }

    async fn take_file(&mut self, part: &mut Field<'_>, name: Option<String>) -> Result<()> {
        if self.file.is_some() {
            return Err(ApiError::field(FILE, "There are two; send one file in each request."));
        }
        let (mut spool, mut hash) = (Spool::default(), Sha256::new());
        while let Some(chunk) = part.chunk().await.map_err(|error| refused(error, self.most))? {
            if spool.size() + chunk.len() as u64 > self.most {
                return Err(too_large(self.most));
            }
            hash.update(&chunk);
            spool.write(&chunk).await.map_err(unwritable)?;
        }
        self.hash.update(hash.finalize());
        self.file = Some(UploadedFile { name, bytes: spool.finish().await.map_err(unwritable)? });
        Ok(())
    }

    async fn take_text(&mut self, part: &mut Field<'_>) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        while let Some(chunk) = part.chunk().await.map_err(|error| refused(error, self.most))? {
            self.text_bytes += chunk.len() as u64;
            if self.text_bytes > BESIDES {
                return Err(broken(&format!("its texts are longer than {BESIDES} bytes")));
            }
            text.extend_from_slice(&chunk);
        }
        self.hash.update(Sha256::digest(&text));
        Ok(text)
    }
}

fn refused(error: multer::Error, most: u64) -> ApiError {
    match error {
        multer::Error::StreamSizeExceeded { .. } => too_large(most),
        _ => broken("it is cut off, or its parts are not what multipart/form-data says"),
    }
}

fn broken(why: &str) -> ApiError {
    ApiError::new(Code::InvalidJson, format!("The form could not be read: {why}."))
}

fn too_large(most: u64) -> ApiError {
    let message = format!("The file is larger than {} MiB, the most that is taken here.", most >> 20);
    ApiError::new(Code::PayloadTooLarge, message)
}

fn unwritable(error: std::io::Error) -> ApiError {
    ApiError::storage(format!("a temporary file cannot be written: {error}"))
}

#[cfg(test)]
mod tests;
