//! A server of a fake platform at which one call fails: it hangs, or its connection breaks.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::io;
use std::sync::{Arc, Mutex};

use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::hang::Hangs;

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The call never gets a response.
    Hang,
    /// The connection is closed without a response.
    Break,
}

struct NextFault {
    /// The index of the call, among all calls.
    call: usize,
    fault: CallFault,
    takes_effect: bool,
}

#[derive(Default)]
struct State {
    /// The method and the last segment of the path of each call.
    calls: Vec<String>,
    next: Option<NextFault>,
}

/// The calls to a running server, and the one that fails.
pub struct CallFaults {
    fake: Box<dyn Respond>,
    state: Mutex<State>,
    pub hangs: Hangs,
}

impl CallFaults {
    /// Starts a server that responds like the fake platform.
    pub async fn start(fake: impl Respond + 'static) -> (Arc<Self>, MockServer) {
        let this = Arc::new(Self { fake: Box::new(fake), state: Mutex::default(), hangs: Hangs::default() });
        let server = MockServer::start().await;
        let (breaking, broken, others) = (this.clone(), this.clone(), this.clone());
        let close = move |request: &Request| {
            broken.handle(request);
            io::Error::from(io::ErrorKind::ConnectionReset)
        };
        Mock::given(move |_: &Request| breaking.breaks_next()).respond_with_err(close).mount(&server).await;
        let respond = move |request: &Request| others.respond(request);
        Mock::given(any()).respond_with(respond).mount(&server).await;
        (this, server)
    }

    /// Makes the `n`-th call from now (from 0) fail, before it takes effect or after that.
    pub fn fail_call(&self, n: usize, fault: CallFault, takes_effect: bool) {
        let mut state = self.state.lock().unwrap();
        let call = state.calls.len() + n;
        state.next = Some(NextFault { call, fault, takes_effect });
    }

    /// Returns whether the call that was set to fail has failed.
    pub fn has_failed(&self) -> bool {
        self.state.lock().unwrap().next.is_none()
    }

    /// Returns the method and the last segment of the path of each call.
    pub fn calls(&self) -> Vec<String> {
        self.state.lock().unwrap().calls.clone()
    }

    fn breaks_next(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.next.as_ref().is_some_and(|next| next.call == state.calls.len() && next.fault == CallFault::Break)
    }

    /// Records a call, and lets it take effect unless a fault prevents that. Returns the response, and whether the call
    /// fails.
    fn handle(&self, request: &Request) -> (ResponseTemplate, bool) {
        let fault = {
            let mut state = self.state.lock().unwrap();
            let number = state.calls.len();
            state.calls.push(name(request));
            state.next.take_if(|next| next.call == number)
        };
        let takes_effect = fault.as_ref().is_none_or(|fault| fault.takes_effect);
        let response = if takes_effect { self.fake.respond(request) } else { ResponseTemplate::new(500) };
        (response, fault.is_some())
    }

    fn respond(&self, request: &Request) -> ResponseTemplate {
        let (response, hangs) = self.handle(request);
        let call = name(request);
        if hangs {
            self.hangs.at(&[&call]);
        }
        self.hangs.respond(&call, response)
    }
}

fn name(request: &Request) -> String {
    format!("{} {}", request.method, request.url.path().rsplit('/').next().unwrap_or_default())
}
