//! The file in memory while it is written, up to a maximum size.

use std::io::{Error, ErrorKind, Result, Write};

/// The maximum size. Larger than any report within the limits of a document.
const MAX_BYTES: usize = 64 << 20;

#[derive(Debug, Default)]
pub struct LimitedOutput(Vec<u8>);

impl LimitedOutput {
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Write for LimitedOutput {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.0.len() + bytes.len() > MAX_BYTES {
            return Err(Error::new(ErrorKind::FileTooLarge, "a report has at most 64 MiB"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn output_is_limited() {
        let mut out = LimitedOutput::default();
        out.write_all(&vec![0; MAX_BYTES]).unwrap();
        assert_eq!(out.write_all(b"x").unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(out.into_bytes().len(), MAX_BYTES);
    }
}
