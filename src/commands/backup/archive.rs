//! The archive of a backup: a tar file whose first entry is a manifest, and whose last entry has the checksums of all
//! others in the format of `sha256sum`. It can be written and read as a stream and inspected with common tools, and a
//! truncated archive is detected.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tar::{Archive, Builder, EntryType, Header};

const MANIFEST: &str = "manifest.json";
const CHECKSUMS: &str = "SHA256SUMS";
const FORMAT: u32 = 1;
const MAX_MANIFEST: u64 = 64 << 10;
const MAX_CHECKSUMS: u64 = 256 << 20;

/// The description of an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// The version of the program that wrote it.
    version: String,
    pub schema: i64,
    pub created_at: DateTime<Utc>,
}

impl Manifest {
    pub fn now(created_at: DateTime<Utc>, schema: i64) -> Self {
        Self { format: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned(), schema, created_at }
    }
}

/// Writes an archive.
pub struct ArchiveWriter<W: Write> {
    tar: Builder<W>,
    checksums: String,
}

impl<W: Write> ArchiveWriter<W> {
    pub fn new(out: W) -> Self {
        Self { tar: Builder::new(out), checksums: String::new() }
    }

    /// Adds the manifest, which must be first.
    pub fn add_manifest(&mut self, manifest: &Manifest) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(manifest)?;
        self.add(MANIFEST, text.len() as u64, text.as_slice())
    }

    pub fn add_file(&mut self, name: &str, file: &mut File) -> io::Result<()> {
        self.add(name, file.metadata()?.len(), file)
    }

    fn add(&mut self, name: &str, size: u64, from: impl Read) -> io::Result<()> {
        let mut hashed = HashingReader { inner: from.take(size), hash: Sha256::new(), size: 0 };
        self.tar.append_data(&mut header(size), name, &mut hashed)?;
        if hashed.size != size {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{name} became shorter during the backup"),
            ));
        }
        self.checksums.push_str(&format!("{}  {name}\n", hashed.hex()));
        Ok(())
    }

    /// Adds the checksums, and ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        let text = std::mem::take(&mut self.checksums);
        self.tar.append_data(&mut header(text.len() as u64), CHECKSUMS, text.as_bytes())?;
        self.tar.into_inner()
    }
}

fn header(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(size);
    header.set_mode(0o600);
    header
}

/// Why an archive cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("it is not a Crier backup: it does not begin with {MANIFEST} (if it is compressed, decompress it first)")]
    NotABackup,
    #[error("this version does not support its format, {0}; use a newer version")]
    Format(u32),
    #[error("it is damaged: {0}; use another backup")]
    Damaged(String),
    /// An entry for which `path_of` returned no path.
    #[error("it is damaged: {0} is unexpected; use another backup")]
    Unexpected(String),
}

/// Extracts an archive. `path_of` returns the path for an entry; `None` rejects the archive.
pub fn extract(from: impl Read, path_of: impl Fn(&Path) -> Option<PathBuf>) -> Result<Manifest, ArchiveError> {
    let mut archive = Archive::new(from);
    let (mut manifest, mut found) = (None::<Manifest>, BTreeMap::<String, String>::new());
    let mut checksums = None::<String>;
    for entry in archive.entries()? {
        let mut entry = entry.map_err(|_| ArchiveError::NotABackup)?;
        let name = safe_name(&entry)?;
        if checksums.is_some() {
            return Err(ArchiveError::Damaged(format!("{name} follows the checksums")));
        }
        if manifest.is_none() && name != MANIFEST {
            return Err(ArchiveError::NotABackup);
        }
        let size = entry.size();
        let mut hashed = HashingReader { inner: &mut entry, hash: Sha256::new(), size: 0 };
        match name.as_str() {
            MANIFEST => manifest = Some(read_manifest(&mut hashed)?),
            CHECKSUMS => {
                checksums = Some(read_text(&mut hashed, MAX_CHECKSUMS)?);
                continue;
            }
            _ => {
                let path = path_of(Path::new(&name)).ok_or_else(|| ArchiveError::Unexpected(name.clone()))?;
                write_file(&path, &mut hashed)?;
            }
        }
        if hashed.size != size {
            return Err(ArchiveError::Damaged(format!("{name} is incomplete")));
        }
        found.insert(name, hashed.hex());
    }
    let checksums = checksums.ok_or_else(|| ArchiveError::Damaged("its end is missing".to_owned()))?;
    compare(&checksums, &found)?;
    manifest.ok_or(ArchiveError::NotABackup)
}

/// Returns the name of an entry. Fails unless it is a file with a relative path that stays in its directory.
fn safe_name(entry: &tar::Entry<'_, impl Read>) -> Result<String, ArchiveError> {
    let path = entry.path()?;
    let is_normal = path.components().all(|part| matches!(part, Component::Normal(_)));
    match path.to_str() {
        Some(name) if is_normal && entry.header().entry_type() == EntryType::Regular => Ok(name.to_owned()),
        _ => Err(ArchiveError::Damaged(format!("{} is not a file of a backup", path.display()))),
    }
}

fn read_text(from: &mut impl Read, max: u64) -> Result<String, ArchiveError> {
    let mut text = String::new();
    from.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max { Err(ArchiveError::Damaged("it is too long".to_owned())) } else { Ok(text) }
}

fn read_manifest(from: &mut impl Read) -> Result<Manifest, ArchiveError> {
    let text = read_text(from, MAX_MANIFEST)?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|_| ArchiveError::NotABackup)?;
    if manifest.format == FORMAT { Ok(manifest) } else { Err(ArchiveError::Format(manifest.format)) }
}

fn write_file(path: &Path, from: &mut impl Read) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    io::copy(from, &mut file)?;
    file.sync_all()
}

fn compare(checksums: &str, found: &BTreeMap<String, String>) -> Result<(), ArchiveError> {
    let mut left = found.clone();
    for line in checksums.lines() {
        let (sum, name) = line.split_once("  ").unwrap_or(("", line));
        match left.remove(name) {
            Some(found) if found == sum => {}
            Some(_) => return Err(ArchiveError::Damaged(format!("the checksum of {name} is wrong"))),
            None => return Err(ArchiveError::Damaged(format!("{name} is missing"))),
        }
    }
    match left.into_keys().next() {
        Some(name) => Err(ArchiveError::Damaged(format!("{name} has no checksum"))),
        None => Ok(()),
    }
}

/// A reader that computes the hash and the size of its data.
struct HashingReader<R> {
    inner: R,
    hash: Sha256,
    size: u64,
}

impl<R> HashingReader<R> {
    fn hex(self) -> String {
        crier_base::hexadecimal::encode(self.hash.finalize())
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.hash.update(&into[..read]);
        self.size += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn archive() -> Vec<u8> {
        let mut writer = ArchiveWriter::new(Vec::new());
        writer.add_manifest(&Manifest::now(DateTime::UNIX_EPOCH, 7)).unwrap();
        writer.add("crier.db", 300, [b'd'; 300].as_slice()).unwrap();
        writer.add("files/media/a", 3, b"abc".as_slice()).unwrap();
        writer.finish().unwrap()
    }

    fn extract_to(dir: &Path, archive: &[u8]) -> Result<Manifest, ArchiveError> {
        extract(archive, |name| Some(dir.join(name)))
    }

    #[test]
    fn what_was_written_is_extracted() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(extract_to(dir.path(), &archive()).unwrap().schema, 7);
        assert_eq!(fs::read(dir.path().join("files/media/a")).unwrap(), b"abc");
        assert_eq!(fs::read(dir.path().join("crier.db")).unwrap().len(), 300);
    }

    #[test]
    fn a_changed_or_truncated_archive_is_rejected() {
        let whole = archive();
        for place in (0..whole.len() - 1_024).step_by(97) {
            let cut = extract_to(tempfile::tempdir().unwrap().path(), &whole[..place]);
            assert!(cut.is_err(), "cut at {place}");
        }
        let content = whole.windows(3).position(|window| window == b"ddd").unwrap();
        let mut changed = whole;
        changed[content] = b'e';
        let rejected = extract_to(tempfile::tempdir().unwrap().path(), &changed).unwrap_err();
        assert_eq!(rejected.to_string(), "it is damaged: the checksum of crier.db is wrong; use another backup");
    }

    #[test]
    fn entries_that_lead_elsewhere_are_rejected() {
        for (name, kind) in
            [("../escape", EntryType::Regular), ("/etc/x", EntryType::Regular), ("a", EntryType::Symlink)]
        {
            let mut tar = Builder::new(Vec::new());
            let mut entry = header(1);
            entry.set_entry_type(kind);
            // The library rejects such a name.
            entry.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            entry.set_cksum();
            tar.append(&entry, b"x".as_slice()).unwrap();
            let rejected = extract_to(tempfile::tempdir().unwrap().path(), &tar.into_inner().unwrap());
            assert!(matches!(rejected, Err(ArchiveError::Damaged(_))), "{name}");
        }
    }

    #[test]
    fn another_file_is_no_backup() {
        for text in ["", "hello", &"x".repeat(5_000)] {
            assert!(extract_to(tempfile::tempdir().unwrap().path(), text.as_bytes()).is_err(), "{text:.10}");
        }
    }
}
