//! A proxy in front of a server that can vanish: it passes nothing on, and closes no connection, as if the machine of the
//! server had lost its power or its network. The proxy runs on its own thread, so that a test that blocks does not delay
//! it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct VanishingProxy {
    pub port: u16,
    /// Whether the server has vanished. Ends the thread when dropped.
    vanished: watch::Sender<bool>,
}

impl VanishingProxy {
    /// Starts a proxy in front of the server on this port.
    pub fn start(port: u16) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let own = listener.local_addr().unwrap().port();
        let (sender, vanished) = watch::channel(false);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                let mut changes = vanished.clone();
                let ended = async { while changes.changed().await.is_ok() {} };
                tokio::select! { () = accept(listener, port, vanished) => {}, () = ended => {} }
            });
        });
        Self { port: own, vanished: sender }
    }

    /// Lets the server vanish, or come back. The connections that were open when it vanished never continue.
    pub fn set_vanished(&self, vanished: bool) {
        self.vanished.send_replace(vanished);
    }
}

async fn accept(listener: TcpListener, port: u16, vanished: watch::Receiver<bool>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let vanished = vanished.clone();
        tokio::spawn(async move { forward(client, port, &vanished).await });
    }
}

async fn forward(mut client: TcpStream, port: u16, vanished: &watch::Receiver<bool>) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::try_join!(pass(from_client, to_server, vanished), pass(from_server, to_client, vanished)).map(drop)
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    vanished: &watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut chunk).await?;
        if *vanished.borrow() {
            std::future::pending::<()>().await;
        }
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&chunk[..length]).await?;
    }
}
