//! Work that blocks, on the threads for it.

use std::future;
use std::io;

/// Runs the work. If the runtime shuts down before the work began, this never returns: the caller ends here like the
/// process, instead of reporting a failure of the work.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_cancelled() => future::pending().await,
        Err(error) => Err(io::Error::other(error)),
    }
}
