//! `kvasir-sql serve`: clients of Arrow Flight SQL, such as ADBC and JDBC, each as a user of the
//! server.

mod answer;
mod facts;
mod guests;
mod prepared;
mod service;

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, bail, ensure};
use arrow_flight::flight_service_server::FlightServiceServer;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};

use crate::flags::{Flags, ServeFlags};
use crate::flight::guests::Guests;
use crate::flight::service::Service;
use crate::node::{Node, read};
use crate::session;

/// Answers until the process is told to end.
pub async fn serve(node: Node, flags: &Flags, serve: &ServeFlags) -> anyhow::Result<()> {
    let address = address(&serve.listen)?;
    let identity = match (&serve.tls_cert, &serve.tls_key) {
        (Some(cert), Some(key)) => Some(Identity::from_pem(read(cert)?, read(key)?)),
        _ => None,
    };
    if identity.is_none() && !address.ip().is_loopback() && !serve.plaintext {
        bail!(
            "{address} can be reached from other machines, and passwords would go there without \
             TLS: --tls-cert and --tls-key, or --plaintext"
        );
    }
    let init = match &serve.init {
        Some(file) => std::fs::read_to_string(file).with_context(|| file.display().to_string())?,
        None => String::new(),
    };
    let runtime = session::runtime(&flags.limits)?;
    let guests = Guests::new(node, flags.limits.clone(), runtime, init);
    let mut server = Server::builder();
    let scheme = if identity.is_some() { "grpc+tls" } else { "grpc" };
    if let Some(identity) = identity {
        server = server.tls_config(ServerTlsConfig::new().identity(identity))?;
    }
    let incoming = TcpIncoming::bind(address).with_context(|| address.to_string())?;
    // An answer of several frames would wait for the client's acknowledgement of the first.
    let incoming = incoming.with_nodelay(Some(true));
    println!("ready at {scheme}://{}", incoming.local_addr()?);
    let service = FlightServiceServer::new(Service { guests });
    let ended = async {
        // If it cannot be waited for, nothing else ends it either.
        let _ = tokio::signal::ctrl_c().await;
    };
    server.add_service(service).serve_with_incoming_shutdown(incoming, ended).await?;
    Ok(())
}

fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let mut found = text.to_socket_addrs().with_context(|| format!("no address: {text}"))?;
    let address = found.next();
    ensure!(address.is_some(), "no address: {text}");
    address.context("it is there")
}
