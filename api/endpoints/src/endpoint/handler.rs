//! The handlers of endpoints, the steps of a write, and a request that is bound to its handler.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use crier_store::{Conn, Tx};

use super::spec::{EndpointSpec, FirstStep};
use crate::context::Context;
use crate::error::Result;
use crate::file::{FileResponse, FileStream};
use crate::request::Parsed;
use crate::response::{ApiResponse, Output, Reply};
use crate::tus::{TusRequest, TusResponse};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub type ReplyFuture<'a, T> = BoxFuture<'a, Result<Reply<T>>>;

/// A handler of an endpoint whose request has no fields: `async fn(&Context, &mut Conn) -> Result<Reply<T>>`, or the same
/// with a [`Tx`].
pub trait Handler<'a, C: 'a, T>: Send + Sync {
    fn call(&self, cx: &'a Context, conn: &'a mut C) -> ReplyFuture<'a, T>;
}

impl<'a, C: 'a, T, F, Fut> Handler<'a, C, T> for F
where
    F: Fn(&'a Context, &'a mut C) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Reply<T>>> + Send + 'a,
{
    fn call(&self, cx: &'a Context, conn: &'a mut C) -> ReplyFuture<'a, T> {
        Box::pin(self(cx, conn))
    }
}

/// A handler with a request: `async fn(&Context, &mut Conn, Arc<Parsed<Q>>) -> Result<Reply<T>>`, or the same with a
/// [`Tx`].
pub trait RequestHandler<'a, C: 'a, Q, T>: Send + Sync {
    fn call(&self, cx: &'a Context, conn: &'a mut C, request: Arc<Parsed<Q>>) -> ReplyFuture<'a, T>;
}

impl<'a, C: 'a, Q, T, F, Fut> RequestHandler<'a, C, Q, T> for F
where
    F: Fn(&'a Context, &'a mut C, Arc<Parsed<Q>>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Reply<T>>> + Send + 'a,
{
    fn call(&self, cx: &'a Context, conn: &'a mut C, request: Arc<Parsed<Q>>) -> ReplyFuture<'a, T> {
        Box::pin(self(cx, conn, request))
    }
}

/// A handler without a request, as one that is given an empty request.
pub(super) struct WithoutRequest<H>(pub H);

impl<'a, C: 'a, Q, T, H: Handler<'a, C, T>> RequestHandler<'a, C, Q, T> for WithoutRequest<H> {
    fn call(&self, cx: &'a Context, conn: &'a mut C, _: Arc<Parsed<Q>>) -> ReplyFuture<'a, T> {
        self.0.call(cx, conn)
    }
}

/// The first of two steps: `async fn(&Context, Arc<Parsed<Q>>) -> Result<WriteStep<T>>`.
pub trait PrepareHandler<'a, Q, T>: Send + Sync {
    fn call(&self, cx: &'a Context, request: Arc<Parsed<Q>>) -> BoxFuture<'a, Result<WriteStep<T>>>;
}

impl<'a, Q, T, F, Fut> PrepareHandler<'a, Q, T> for F
where
    F: Fn(&'a Context, Arc<Parsed<Q>>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<WriteStep<T>>> + Send + 'a,
{
    fn call(&self, cx: &'a Context, request: Arc<Parsed<Q>>) -> BoxFuture<'a, Result<WriteStep<T>>> {
        Box::pin(self(cx, request))
    }
}

/// A handler of a download: `async fn(&Context, &mut Conn) -> Result<FileResponse>`.
pub trait DownloadHandler<'a>: Send + Sync {
    fn call(&self, cx: &'a Context, conn: &'a mut Conn) -> BoxFuture<'a, Result<FileResponse>>;
}

impl<'a, F, Fut> DownloadHandler<'a> for F
where
    F: Fn(&'a Context, &'a mut Conn) -> Fut + Send + Sync,
    Fut: Future<Output = Result<FileResponse>> + Send + 'a,
{
    fn call(&self, cx: &'a Context, conn: &'a mut Conn) -> BoxFuture<'a, Result<FileResponse>> {
        Box::pin(self(cx, conn))
    }
}

/// A handler of a file that is created while it is sent: `async fn(&Context, &mut Conn, Arc<Parsed<Q>>) ->
/// Result<FileStream>`.
pub trait StreamHandler<'a, Q>: Send + Sync {
    fn call(&self, cx: &'a Context, conn: &'a mut Conn, request: Arc<Parsed<Q>>) -> BoxFuture<'a, Result<FileStream>>;
}

impl<'a, Q, F, Fut> StreamHandler<'a, Q> for F
where
    F: Fn(&'a Context, &'a mut Conn, Arc<Parsed<Q>>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<FileStream>> + Send + 'a,
{
    fn call(&self, cx: &'a Context, conn: &'a mut Conn, request: Arc<Parsed<Q>>) -> BoxFuture<'a, Result<FileStream>> {
        Box::pin(self(cx, conn, request))
    }
}

/// A handler of a request of the tus protocol: `async fn(&Context, TusRequest<'_>) -> Result<TusResponse>`.
pub trait TusHandler<'a>: Send + Sync {
    fn call(&self, cx: &'a Context, request: TusRequest<'a>) -> BoxFuture<'a, Result<TusResponse>>;
}

impl<'a, F, Fut> TusHandler<'a> for F
where
    F: Fn(&'a Context, TusRequest<'a>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<TusResponse>> + Send + 'a,
{
    fn call(&self, cx: &'a Context, request: TusRequest<'a>) -> BoxFuture<'a, Result<TusResponse>> {
        Box::pin(self(cx, request))
    }
}

/// The second step: writes the result of the first one. May be retried.
pub struct WriteStep<T> {
    write: Box<dyn for<'a> Handler<'a, Tx, T>>,
    undo: Option<Undo>,
}

/// Undoes the first step.
type Undo = Box<dyn for<'a> Fn(&'a Context) -> BoxFuture<'a, ()> + Send + Sync>;

impl<T> WriteStep<T> {
    /// Combines the result of the first step with the function that writes it.
    pub fn new<P, F>(prepared: P, write: F) -> Self
    where
        T: 'static,
        P: Send + Sync + 'static,
        F: for<'a> Fn(&'a Context, &'a mut Tx, Arc<P>) -> ReplyFuture<'a, T> + Send + Sync + 'static,
    {
        struct Bound<P, F>(Arc<P>, F);
        impl<'a, T, P, F> Handler<'a, Tx, T> for Bound<P, F>
        where
            P: Send + Sync,
            F: Fn(&'a Context, &'a mut Tx, Arc<P>) -> ReplyFuture<'a, T> + Send + Sync,
        {
            fn call(&self, cx: &'a Context, tx: &'a mut Tx) -> ReplyFuture<'a, T> {
                (self.1)(cx, tx, self.0.clone())
            }
        }
        Self { write: Box::new(Bound(Arc::new(prepared), write)), undo: None }
    }

    /// Sets the function that runs if nothing was written, because of an error or because another request with the same
    /// key was faster.
    pub fn or_undo<F>(self, undo: F) -> Self
    where
        F: for<'a> Fn(&'a Context) -> BoxFuture<'a, ()> + Send + Sync + 'static,
    {
        Self { undo: Some(Box::new(undo)), ..self }
    }
}

/// The handler of an endpoint.
pub(super) enum HandlerKind<Q, T> {
    Reads(Arc<dyn for<'a> RequestHandler<'a, Conn, Q, T>>),
    Downloads(Arc<dyn for<'a> DownloadHandler<'a>>),
    Streams(Arc<dyn for<'a> StreamHandler<'a, Q>>),
    Tus(Arc<dyn for<'a> TusHandler<'a>>),
    Writes(Arc<dyn for<'a> RequestHandler<'a, Tx, Q, T>>),
    TwoSteps(FirstStep, Arc<dyn for<'a> PrepareHandler<'a, Q, T>>),
}

impl<Q, T> Clone for HandlerKind<Q, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Reads(handler) => Self::Reads(handler.clone()),
            Self::Downloads(handler) => Self::Downloads(handler.clone()),
            Self::Streams(handler) => Self::Streams(handler.clone()),
            Self::Tus(handler) => Self::Tus(handler.clone()),
            Self::Writes(handler) => Self::Writes(handler.clone()),
            Self::TwoSteps(first, handler) => Self::TwoSteps(*first, handler.clone()),
        }
    }
}

/// Where a call in this process finds the value that the handler returned.
pub type ValueSlot<T> = Arc<Mutex<Option<T>>>;

/// A part of a handler whose types the runner need not know.
pub type Step<C> = Box<dyn for<'a> Fn(&'a Context, &'a mut C) -> BoxFuture<'a, Result<ApiResponse>> + Send + Sync>;

/// A handler of a [`FileStream`] whose types the runner need not know.
pub type BoundStream =
    Box<dyn for<'a> Fn(&'a Context, &'a mut Conn) -> BoxFuture<'a, Result<FileStream>> + Send + Sync>;

/// The first of two steps, without its types.
pub type BoundPrepare = Box<dyn for<'a> Fn(&'a Context) -> BoxFuture<'a, Result<BoundWriteStep>> + Send + Sync>;

/// A request that is bound to its handler.
pub enum BoundHandler {
    Read(Step<Conn>),
    Download(Arc<dyn for<'a> DownloadHandler<'a>>),
    Stream(BoundStream),
    Tus(Arc<dyn for<'a> TusHandler<'a>>),
    Write(Step<Tx>),
    TwoSteps(FirstStep, BoundPrepare),
}

/// A [`WriteStep`] whose types the runner need not know.
pub struct BoundWriteStep {
    pub write: Step<Tx>,
    undo: Option<Undo>,
}

impl BoundWriteStep {
    pub async fn undo(&self, cx: &Context) {
        if let Some(undo) = &self.undo {
            undo(cx).await;
        }
    }
}

/// Converts what a handler returns to the response that is sent and stored.
pub(super) struct Responder<R: Output> {
    pub spec: Arc<EndpointSpec>,
    /// `None` if only the response is needed.
    pub slot: Option<ValueSlot<R::Value>>,
}

impl<R: Output> Clone for Responder<R> {
    fn clone(&self) -> Self {
        Self { spec: self.spec.clone(), slot: self.slot.clone() }
    }
}

impl<R: Output> Responder<R> {
    /// A read in this process needs only the value; a write's response is stored.
    fn respond(&self, cx: &Context, reply: Reply<R::Value>) -> Result<ApiResponse> {
        let is_read = !self.spec.is_write();
        let response = match &self.slot {
            Some(_) if is_read => ApiResponse::no_content(),
            _ => reply.to_response::<R>(cx, self.spec.status)?,
        };
        if let Some(slot) = &self.slot {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply.value);
        }
        Ok(response)
    }

    /// Returns a step that calls a handler.
    pub fn step<C: Send + 'static>(&self, handler: Arc<dyn for<'a> Handler<'a, C, R::Value>>) -> Step<C> {
        let responder = self.clone();
        Box::new(move |cx, conn| {
            let (responder, handler) = (responder.clone(), handler.clone());
            Box::pin(async move { responder.respond(cx, handler.call(cx, conn).await?) })
        })
    }

    pub fn bind<Q: Send + Sync + 'static>(&self, kind: &HandlerKind<Q, R::Value>, request: Parsed<Q>) -> BoundHandler {
        let request = Arc::new(request);
        match kind {
            HandlerKind::Reads(handler) => BoundHandler::Read(self.step(bound(handler.clone(), request))),
            HandlerKind::Downloads(handler) => BoundHandler::Download(handler.clone()),
            HandlerKind::Streams(handler) => {
                let handler = handler.clone();
                let stream: BoundStream = Box::new(move |cx, conn| handler.call(cx, conn, request.clone()));
                BoundHandler::Stream(stream)
            }
            HandlerKind::Tus(handler) => BoundHandler::Tus(handler.clone()),
            HandlerKind::Writes(handler) => BoundHandler::Write(self.step(bound(handler.clone(), request))),
            HandlerKind::TwoSteps(first, prepare) => {
                let (responder, prepare) = (self.clone(), prepare.clone());
                let prepare: BoundPrepare = Box::new(move |cx| {
                    let (responder, prepare, request) = (responder.clone(), prepare.clone(), request.clone());
                    Box::pin(async move {
                        let WriteStep { write, undo } = prepare.call(cx, request).await?;
                        Ok(BoundWriteStep { write: responder.step(write.into()), undo })
                    })
                });
                BoundHandler::TwoSteps(*first, prepare)
            }
        }
    }
}

/// A handler and its request, as a handler without one.
struct WithRequest<C, Q, T>(Arc<dyn for<'a> RequestHandler<'a, C, Q, T>>, Arc<Parsed<Q>>);

impl<'a, C: 'a, Q: Send + Sync, T> Handler<'a, C, T> for WithRequest<C, Q, T> {
    fn call(&self, cx: &'a Context, conn: &'a mut C) -> ReplyFuture<'a, T> {
        self.0.call(cx, conn, self.1.clone())
    }
}

fn bound<C: 'static, Q: Send + Sync + 'static, T: 'static>(
    handler: Arc<dyn for<'a> RequestHandler<'a, C, Q, T>>,
    request: Arc<Parsed<Q>>,
) -> Arc<dyn for<'a> Handler<'a, C, T>> {
    Arc::new(WithRequest(handler, request))
}
