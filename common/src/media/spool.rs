//! Bytes that are received before anybody knows what they are: in memory while they are few, else in a file that has no name,
//! so that nothing of it is left when the process dies.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use bytes::Bytes;

/// So many are written at once; fewer never leave the memory.
const CHUNK: usize = 512 * 1024;

/// Takes bytes in.
#[derive(Debug, Default)]
pub struct Spool {
    waiting: Vec<u8>,
    file: Option<Arc<File>>,
    size: u64,
}

impl Spool {
    /// How many there are by now.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.size += bytes.len() as u64;
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() < CHUNK { Ok(()) } else { self.flush().await }
    }

    pub async fn finish(mut self) -> io::Result<Spooled> {
        if self.file.is_none() {
            return Ok(Spooled { size: self.size, place: Place::Memory(self.waiting.into()) });
        }
        self.flush().await?;
        match self.file {
            Some(file) => Ok(Spooled { size: self.size, place: Place::File(file) }),
            None => Err(io::Error::other("the file is gone")),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let (file, mut waiting) = (self.file.take(), std::mem::take(&mut self.waiting));
        let write = move || {
            let file = file.map_or_else(|| tempfile::tempfile().map(Arc::new), Ok)?;
            (&*file).write_all(&waiting)?;
            waiting.clear();
            Ok::<_, io::Error>((file, waiting))
        };
        let (file, waiting) = tokio::task::spawn_blocking(write).await.map_err(io::Error::other)??;
        (self.file, self.waiting) = (Some(file), waiting);
        Ok(())
    }
}

/// Bytes that are all here. Cheap to clone; one reads at a time.
#[derive(Clone, Debug)]
pub struct Spooled {
    size: u64,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Memory(Bytes),
    File(Arc<File>),
}

impl Spooled {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// From the first byte on. Blocks while it reads.
    pub fn reader(&self) -> io::Result<Box<dyn Source + '_>> {
        Ok(match &self.place {
            Place::Memory(bytes) => Box::new(Cursor::new(bytes)),
            Place::File(file) => {
                let mut file = BufReader::new(&**file);
                file.seek(SeekFrom::Start(0))?;
                Box::new(file)
            }
        })
    }

    /// All of them. Blocks while it reads.
    pub fn bytes(&self) -> io::Result<Bytes> {
        match &self.place {
            Place::Memory(bytes) => Ok(bytes.clone()),
            Place::File(_) => {
                let mut all = Vec::with_capacity(usize::try_from(self.size).unwrap_or_default());
                self.reader()?.read_to_end(&mut all)?;
                Ok(all.into())
            }
        }
    }
}

impl From<Bytes> for Spooled {
    fn from(bytes: Bytes) -> Self {
        Self { size: bytes.len() as u64, place: Place::Memory(bytes) }
    }
}

/// What can be read in any order.
pub trait Source: BufRead + Seek {}

impl<T: BufRead + Seek> Source for T {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read_again_be_it_few_or_many() {
        for size in [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 5] {
            let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            let mut spool = Spool::default();
            for piece in bytes.chunks(100_003) {
                spool.write(piece).await.unwrap();
            }
            let spooled = spool.finish().await.unwrap();
            assert_eq!(spooled.size(), size as u64);
            assert_eq!(matches!(spooled.place, Place::Memory(_)), size < CHUNK, "{size}");
            for _ in 0..2 {
                assert!(spooled.bytes().unwrap() == bytes, "{size}");
                let mut read = Vec::new();
                spooled.reader().unwrap().read_to_end(&mut read).unwrap();
                assert!(read == bytes, "{size}");
            }
        }
    }
}
