//! A client's connection to an API, with one request at a time.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use futures::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::{BenchError, fail};

pub struct Connection {
    requests: SendRequest<BoxBody<Bytes, Infallible>>,
    address: SocketAddr,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Result<Self, BenchError> {
        let failed = |error: &dyn std::fmt::Display| BenchError::Failed(format!("a client, at {address}: {error}"));
        #[expect(clippy::disallowed_methods, reason = "a benchmark is a client of its own")]
        let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let (requests, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        // The task ends when `requests` is dropped. Requests return its errors.
        tokio::spawn(connection);
        Ok(Self { requests, address })
    }

    /// Sends a request and returns the JSON response; fails if the status is not 200.
    pub async fn request_json(&mut self, method: Method, path: &str, body: &Value) -> Result<Value, BenchError> {
        let (status, response) = self.send_json(Request::builder().method(method).uri(path), body).await?;
        match serde_json::from_slice(&response) {
            Ok(value) if status == StatusCode::OK => Ok(value),
            _ => fail(format!("{path} answered {status}: {}", String::from_utf8_lossy(&response))),
        }
    }

    /// Sends a JSON body, and returns the status and the body of the response.
    pub async fn send_json(
        &mut self,
        request: http::request::Builder,
        body: &Value,
    ) -> Result<(StatusCode, Bytes), BenchError> {
        self.send(request.header(CONTENT_TYPE, "application/json"), vec![body.to_string().into()]).await
    }

    /// Sends a body of any type, in chunks that requests may share. Returns the status and the body of the response.
    pub async fn send(
        &mut self,
        request: http::request::Builder,
        body: Vec<Bytes>,
    ) -> Result<(StatusCode, Bytes), BenchError> {
        let response = self.send_for_response(request, body).await?;
        Ok((response.status(), response.into_body()))
    }

    /// Like [`Connection::send`], but returns the whole response with its headers.
    pub async fn send_for_response(
        &mut self,
        request: http::request::Builder,
        body: Vec<Bytes>,
    ) -> Result<Response<Bytes>, BenchError> {
        let (head, body) = self.begin(request, body).await?.into_parts();
        let body = body.collect().await.map_err(|error| failed(&error))?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }

    /// Sends a request without a body. Reads the body of the response without keeping it, and returns its status and its
    /// number of bytes.
    pub async fn download(&mut self, request: http::request::Builder) -> Result<(StatusCode, u64), BenchError> {
        let mut response = self.begin(request, Vec::new()).await?;
        let mut bytes = 0;
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|error| failed(&error))?;
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Ok((response.status(), bytes))
    }

    async fn begin(
        &mut self,
        request: http::request::Builder,
        body: Vec<Bytes>,
    ) -> Result<Response<Incoming>, BenchError> {
        let length: usize = body.iter().map(Bytes::len).sum();
        let request = request.header(HOST, self.address.to_string()).header(CONTENT_LENGTH, length);
        let frames = stream::iter(body.into_iter().map(|piece| Ok(Frame::data(piece))));
        let request = request.body(StreamBody::new(frames).boxed()).map_err(|error| failed(&error))?;
        self.requests.ready().await.map_err(|error| failed(&error))?;
        self.requests.send_request(request).await.map_err(|error| failed(&error))
    }
}

fn failed(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Failed(format!("a request: {error}"))
}
