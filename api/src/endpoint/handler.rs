//! The traits of endpoint handlers, and the steps of a write.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crier_store::{Conn, Tx};

use crate::context::Context;
use crate::error::Result;
use crate::file::FileResponse;
use crate::response::ApiResponse;

pub type HandlerFuture<'a> = Pin<Box<dyn Future<Output = Result<ApiResponse>> + Send + 'a>>;

/// A handler: `async fn(&Context, &mut Conn) -> Result<ApiResponse>`, or the same with a [`Tx`].
pub trait Handler<'a, C: 'a>: Send + Sync {
    fn call(&self, cx: &'a Context, conn: &'a mut C) -> HandlerFuture<'a>;
}

impl<'a, C: 'a, F, Fut> Handler<'a, C> for F
where
    F: Fn(&'a Context, &'a mut C) -> Fut + Send + Sync,
    Fut: Future<Output = Result<ApiResponse>> + Send + 'a,
{
    fn call(&self, cx: &'a Context, conn: &'a mut C) -> HandlerFuture<'a> {
        Box::pin(self(cx, conn))
    }
}

/// The first of two steps: `async fn(&Context) -> Result<WriteStep>`.
pub trait PrepareHandler<'a>: Send + Sync {
    fn call(&self, cx: &'a Context) -> Pin<Box<dyn Future<Output = Result<WriteStep>> + Send + 'a>>;
}

impl<'a, F, Fut> PrepareHandler<'a> for F
where
    F: Fn(&'a Context) -> Fut + Send + Sync,
    Fut: Future<Output = Result<WriteStep>> + Send + 'a,
{
    fn call(&self, cx: &'a Context) -> Pin<Box<dyn Future<Output = Result<WriteStep>> + Send + 'a>> {
        Box::pin(self(cx))
    }
}

/// A handler that receives the parsed body: `async fn(&Context, &mut Tx, Arc<T>) -> Result<ApiResponse>`.
pub trait ParsedBodyHandler<'a, T>: Send + Sync {
    fn call(&self, cx: &'a Context, tx: &'a mut Tx, parsed: Arc<T>) -> HandlerFuture<'a>;
}

impl<'a, T, F, Fut> ParsedBodyHandler<'a, T> for F
where
    F: Fn(&'a Context, &'a mut Tx, Arc<T>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<ApiResponse>> + Send + 'a,
{
    fn call(&self, cx: &'a Context, tx: &'a mut Tx, parsed: Arc<T>) -> HandlerFuture<'a> {
        Box::pin(self(cx, tx, parsed))
    }
}

/// A handler of a download: `async fn(&Context, &mut Conn) -> Result<FileResponse>`.
pub trait DownloadHandler<'a>: Send + Sync {
    fn call(
        &self,
        cx: &'a Context,
        conn: &'a mut Conn,
    ) -> Pin<Box<dyn Future<Output = Result<FileResponse>> + Send + 'a>>;
}

impl<'a, F, Fut> DownloadHandler<'a> for F
where
    F: Fn(&'a Context, &'a mut Conn) -> Fut + Send + Sync,
    Fut: Future<Output = Result<FileResponse>> + Send + 'a,
{
    fn call(
        &self,
        cx: &'a Context,
        conn: &'a mut Conn,
    ) -> Pin<Box<dyn Future<Output = Result<FileResponse>> + Send + 'a>> {
        Box::pin(self(cx, conn))
    }
}

/// The second step: writes the result of the first one. May be retried.
pub struct WriteStep {
    write: Box<dyn for<'a> Handler<'a, Tx>>,
    undo: Option<Undo>,
}

/// Undoes the first step.
type Undo = Box<dyn for<'a> Fn(&'a Context) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> + Send + Sync>;

impl WriteStep {
    /// Combines the result of the first step with the function that writes it.
    pub fn new<T, F>(prepared: T, write: F) -> Self
    where
        T: Send + Sync + 'static,
        F: for<'a> Fn(&'a Context, &'a mut Tx, Arc<T>) -> HandlerFuture<'a> + Send + Sync + 'static,
    {
        struct Bound<T, F>(Arc<T>, F);
        impl<'a, T, F> Handler<'a, Tx> for Bound<T, F>
        where
            T: Send + Sync,
            F: Fn(&'a Context, &'a mut Tx, Arc<T>) -> HandlerFuture<'a> + Send + Sync,
        {
            fn call(&self, cx: &'a Context, tx: &'a mut Tx) -> HandlerFuture<'a> {
                (self.1)(cx, tx, self.0.clone())
            }
        }
        Self { write: Box::new(Bound(Arc::new(prepared), write)), undo: None }
    }

    /// Sets the function that runs if nothing was written, because of an error or because another request with the same
    /// key was faster.
    pub fn or_undo<F>(self, undo: F) -> Self
    where
        F: for<'a> Fn(&'a Context) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> + Send + Sync + 'static,
    {
        Self { undo: Some(Box::new(undo)), ..self }
    }

    pub(crate) async fn undo(&self, cx: &Context) {
        if let Some(undo) = &self.undo {
            undo(cx).await;
        }
    }

    pub(crate) fn call<'a>(&self, cx: &'a Context, tx: &'a mut Tx) -> HandlerFuture<'a> {
        self.write.call(cx, tx)
    }
}

/// The kind of handler of an endpoint.
#[derive(Clone)]
pub enum HandlerKind {
    Reads(Arc<dyn for<'a> Handler<'a, Conn>>),
    Downloads(Arc<dyn for<'a> DownloadHandler<'a>>),
    /// Called before the transaction begins; returns the step that runs inside it.
    Writes(Arc<dyn Fn(&Context) -> WriteStep + Send + Sync>),
    TwoSteps {
        prepare: Arc<dyn for<'a> PrepareHandler<'a>>,
        first: FirstStep,
    },
}

/// The kind of the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstStep {
    /// An external query with a timeout of 20 s. It may run twice.
    Query,
    /// An external call with a timeout of 20 s that must not run twice, so the key is leased during the call.
    Lease,
    /// Stores a file. Each part of this has its own timeout.
    Upload,
    /// Like [`FirstStep::Lease`], but without a timeout from the runner: the step enforces the limit of 20 s itself,
    /// and refunds what it reserved.
    Reserve,
}

impl FirstStep {
    /// Returns whether the key is leased during the first step.
    pub const fn needs_lease(self) -> bool {
        matches!(self, Self::Lease | Self::Reserve)
    }
}
