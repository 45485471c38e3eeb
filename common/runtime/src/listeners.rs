//! The addresses of a process. They are bound before the process creates or changes anything, so that a start with a
//! busy port has no effect, and so that the bound address is known.

use std::net::SocketAddr;

use crier_config::{Config, ProcessRole};
use tokio::net::{TcpListener, TcpSocket};

use super::StartError;

/// The maximum number of connections that wait for acceptance. The kernel's limit may be lower.
const BACKLOG: u32 = 1_024;

/// The bound addresses.
pub(super) struct Listeners {
    pub(super) ops: TcpListener,
    /// `None` if the process has no API.
    pub(super) api: Option<ApiSocket>,
}

/// The bound socket of the API. Clients cannot connect until it listens.
#[derive(Debug)]
pub(super) struct ApiSocket(TcpSocket);

impl Listeners {
    /// Binds the configured addresses, and sets those of `config` to the bound ones.
    pub(super) async fn bind(config: &mut Config) -> Result<Self, StartError> {
        let addr = config.http.ops_addr;
        let ops = TcpListener::bind(addr).await.map_err(|error| bind_error("CRIER_OPS_ADDR", addr, error))?;
        config.http.ops_addr = ops.local_addr().unwrap_or(addr);
        if !matches!(config.role, ProcessRole::Crier | ProcessRole::Api) {
            return Ok(Self { ops, api: None });
        }
        let addr = config.http.addr;
        let api = socket(addr).map_err(|error| bind_error("CRIER_HTTP_ADDR", addr, error))?;
        config.set_bound_addr(api.local_addr().unwrap_or(addr));
        Ok(Self { ops, api: Some(ApiSocket(api)) })
    }
}

fn socket(addr: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for the connections of the previous process.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

impl ApiSocket {
    /// Lets clients connect.
    pub(super) fn listen(self, addr: SocketAddr) -> Result<TcpListener, StartError> {
        self.0.listen(BACKLOG).map_err(|error| bind_error("CRIER_HTTP_ADDR", addr, error))
    }
}

fn bind_error(variable: &str, addr: SocketAddr, error: std::io::Error) -> StartError {
    let remedy = match error.kind() {
        std::io::ErrorKind::AddrInUse => "stop the program that uses it, or choose another port with ",
        std::io::ErrorKind::AddrNotAvailable => "this machine does not have this address; correct ",
        std::io::ErrorKind::PermissionDenied => "ports below 1024 require a privilege; choose another port with ",
        _ => "correct ",
    };
    StartError::Io { what: format!("cannot listen on {addr}; {remedy}{variable}"), error }
}
