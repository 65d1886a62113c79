//! Connects to PostgreSQL, with TLS if the URL asks for it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use machine::sys::regular_file;
use postgres_url::Tls;

use super::super::db::BoxError;
use super::client::Connector;

/// Returns the next message of a connection, and makes its progress.
pub(super) type Messages = Box<
    dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>> + Send,
>;

/// Connects to the first host that accepts a session with `options`, in addition to those of the
/// URL.
///
/// # Errors
/// A host that does not answer, a server that refuses, or certificates that cannot be read. If all
/// hosts fail, the error is that of the last one.
pub(super) async fn connect(
    Connector { url, name, longest_silence }: &Connector,
    options: &str,
) -> Result<(Client, Messages), BoxError> {
    let mut failed = None;
    for host in url.hosts() {
        let connecting = connect_to(session(host, name, options), url.tls());
        match timeout(*longest_silence, connecting).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => failed = Some(error),
            Err(_) => {
                let text = format!("timeout: it has not answered for {longest_silence:?}");
                failed = Some(io::Error::new(io::ErrorKind::TimedOut, text).into());
            }
        }
    }
    Err(failed.unwrap_or_else(|| "the URL names no host".into()))
}

async fn connect_to(config: Config, tls: &Tls) -> Result<(Client, Messages), BoxError> {
    Ok(match tls {
        Tls::Off => {
            let (client, mut connection) = config.connect(NoTls).await?;
            (client, Box::new(move |cx| connection.poll_message(cx)))
        }
        Tls::Verified { root_certificate } => {
            let tls = MakeRustlsConnect::new(client_config(root_certificate.as_deref())?);
            let (client, mut connection) = config.connect(tls).await?;
            (client, Box::new(move |cx| connection.poll_message(cx)))
        }
    })
}

/// Returns the settings of a session.
fn session(host: &Config, name: &str, options: &str) -> Config {
    let mut config = host.clone();
    let options = match config.get_options() {
        Some(given) => format!("{given} {options}"),
        None => options.to_owned(),
    };
    config.options(&options).application_name(name);
    config
}

fn client_config(root_certificate: Option<&Path>) -> Result<ClientConfig, BoxError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let Some(path) = root_certificate else {
        return Ok(builder.with_platform_verifier()?.with_no_client_auth());
    };
    let unreadable = |error: &dyn fmt::Display| -> BoxError {
        format!("could not read the certificates in `{}`: {error}", path.display()).into()
    };
    regular_file::check_named(path).map_err(|error| unreadable(&error))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
        roots.add(certificate.map_err(|error| unreadable(&error))?)?;
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
