//! Connects to PostgreSQL, with TLS if the URL asks for it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_postgres::AsyncMessage;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::postgres_url::{PostgresUrl, Tls};

use super::super::db::BoxError;

/// Returns the next message of a connection, and makes its progress.
pub(super) type Messages = Box<
    dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>> + Send,
>;

/// Connects as `name` with `options` of the session, in addition to those of the URL.
///
/// # Errors
/// A host that does not answer, a server that refuses, or certificates that cannot be read.
pub(super) fn connect(
    url: &PostgresUrl,
    name: &str,
    options: &str,
) -> Result<postgres::Client, BoxError> {
    let config = postgres::Config::from(session(url, name, options));
    Ok(match url.tls() {
        Tls::Off => config.connect(postgres::NoTls)?,
        Tls::Verified { root_certificate } => {
            config.connect(MakeRustlsConnect::new(tls(root_certificate.as_deref())?))?
        }
    })
}

/// Does what [`connect`] does for a session that receives messages.
///
/// # Errors
/// The errors of [`connect`].
pub(super) async fn connect_for_messages(
    url: &PostgresUrl,
    name: &str,
    options: &str,
) -> Result<(tokio_postgres::Client, Messages), BoxError> {
    let config = session(url, name, options);
    Ok(match url.tls() {
        Tls::Off => {
            let (client, mut connection) = config.connect(tokio_postgres::NoTls).await?;
            (client, Box::new(move |cx| connection.poll_message(cx)))
        }
        Tls::Verified { root_certificate } => {
            let tls = MakeRustlsConnect::new(tls(root_certificate.as_deref())?);
            let (client, mut connection) = config.connect(tls).await?;
            (client, Box::new(move |cx| connection.poll_message(cx)))
        }
    })
}

/// Returns the settings of a session.
fn session(url: &PostgresUrl, name: &str, options: &str) -> tokio_postgres::Config {
    let mut config = url.config().clone();
    let options = match config.get_options() {
        Some(given) => format!("{given} {options}"),
        None => options.to_owned(),
    };
    config.options(&options).application_name(name);
    config
}

fn tls(root_certificate: Option<&Path>) -> Result<ClientConfig, BoxError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let Some(path) = root_certificate else {
        return Ok(builder.with_platform_verifier()?.with_no_client_auth());
    };
    let unreadable = |error: &dyn fmt::Display| -> BoxError {
        format!("could not read the certificates in `{}`: {error}", path.display()).into()
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
        roots.add(certificate.map_err(|error| unreadable(&error))?)?;
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
