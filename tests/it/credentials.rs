//! The use cases of credentials: they are made, checked and removed.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use domain::credential::{CredentialKind, LinkFault, Role};
use domain::{Credential, Refusal, Secret, Timestamp};
use runtime::nudge::Nudge;
use service::world::{SystemWorld, World};
use service::{Service, ServiceError};
use store::rows::Store;

use crate::questions::Questions;
use crate::rows::{self, Row};
use crate::service::settings;

const LONG_AGO: Timestamp = Timestamp::from_millis(1_000);

fn service() -> (Arc<Store>, Arc<Service>) {
    let store = Arc::new(Store::in_memory().unwrap());
    (store.clone(), Arc::new(Service::new(store, Arc::new(SystemWorld), settings(), Nudge::new())))
}

/// Returns a credential that does not expire during the test.
fn credential(id: &str, kind: CredentialKind) -> Credential {
    Credential {
        id: id.parse().unwrap(),
        kind,
        name: "Ann".to_owned(),
        role: Role::Viewer,
        secret: Secret::new(id).token_hash(),
        created_at: LONG_AGO,
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
        revision: 0,
    }
}

async fn keep(store: &Store, rows: impl IntoIterator<Item = Credential>) {
    let changes = rows.into_iter().map(Row::Credential).collect();
    rows::write(store, changes).await.unwrap();
}

fn fault_of<T: std::fmt::Debug>(result: Result<T, ServiceError>) -> LinkFault {
    match result {
        Err(ServiceError::Refused(Refusal::LinkNotValid(fault))) => fault,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn of_many_who_use_a_link_at_once_one_gets_in() {
    let (_, service) = service();
    let link = service.credentials.make_link("Ann", Role::Viewer).await.unwrap();
    let uses: Vec<_> = (0..20)
        .map(|_| {
            let (service, secret) = (service.clone(), link.secret.clone());
            tokio::spawn(async move { service.credentials.use_link(&secret).await })
        })
        .collect();
    let mut cookies = Vec::new();
    for used in uses {
        match used.await.unwrap() {
            Ok(cookie) => cookies.push(cookie),
            refused => assert_eq!(fault_of(refused), LinkFault::Used),
        }
    }
    assert_eq!(cookies.len(), 1);
    let cookie = &cookies[0];
    let known =
        service.credentials.find(CredentialKind::Cookie, &cookie.secret).await.unwrap().unwrap();
    assert_eq!(
        (known.id, known.role, known.name.as_str()),
        (cookie.credential.id.clone(), Role::Viewer, "Ann")
    );
    assert_eq!(
        service.credentials.find(CredentialKind::Token, &cookie.secret).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn a_link_expires() {
    let (store, service) = service();
    let late =
        Credential { expires_at: Some(LONG_AGO), ..credential("key_late", CredentialKind::Link) };
    keep(&store, [late]).await;
    let secret = Secret::new("key_late");
    assert_eq!(fault_of(service.credentials.look_at_link(&secret).await), LinkFault::Expired);
    assert_eq!(fault_of(service.credentials.use_link(&secret).await), LinkFault::Expired);
    assert_eq!(
        fault_of(service.credentials.use_link(&Secret::new("op_other")).await),
        LinkFault::Unknown
    );
    assert!(service.credentials.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_has_ended_is_forgotten_in_time_and_nothing_else() {
    let (store, service) = service();
    let now = SystemWorld.now();
    let with = |id: &str, expires_at, revoked_at| Credential {
        expires_at,
        revoked_at,
        ..credential(id, CredentialKind::Token)
    };
    keep(
        &store,
        [
            with("endless", None, None),
            with("good", Some(now + std::time::Duration::from_hours(1)), None),
            with("just_revoked", None, Some(now)),
            with("expired", Some(LONG_AGO), None),
            with("revoked", None, Some(LONG_AGO)),
        ],
    )
    .await;
    service.maintenance.cleanup().await.unwrap();
    let mut left: Vec<_> =
        store.credentials().await.unwrap().into_iter().map(|row| row.id.to_string()).collect();
    left.sort_unstable();
    assert_eq!(left, ["endless", "good", "just_revoked"]);
}
