//! `agents`: the credentials for starting agents of a server on another host.

use std::collections::BTreeMap;

use domain::{AgentId, Secret, limits};

use super::declaration::{Keys, keys};
use super::kinds::{Kind, secret};
use super::reader::Section;

keys! {
    /// The credentials, by agent id, for starting agents on behalf of a server on another host. The
    /// agents of this daemon's own server need none.
    pub struct AgentCredentials in "agents.*" {
        /// Required. The passkey of the agent at the server from the moment when the daemon reads
        /// it, or when an agent of this id is created later. Agents that the daemon starts itself
        /// get a ticket instead. Take it from a variable rather than writing it here.
        pub passkey: Secret = Secret::new(""), passkey(), Now;
    }
}

fn passkey() -> Kind<Secret> {
    let kind = secret().required().for_example("${DEV_PASSKEY}");
    // The server would refuse the passkey in the same words, but could not name the place in the
    // file.
    kind.checked(|passkey: &Secret| {
        limits::PASSKEY.take(passkey.reveal()).map(drop).map_err(|refusal| refusal.to_string())
    })
}

pub(super) fn read(top: &mut Section<'_, '_>) -> BTreeMap<AgentId, AgentCredentials> {
    let reader = top.reader();
    let sections = top.named_sections("agents").into_iter();
    let credentials = sections.filter_map(|(name, mut section)| {
        let credentials = AgentCredentials::read(&mut section);
        Some((name.id(reader)?, credentials))
    });
    credentials.collect()
}
