//! `agents`: what the coordinator needs to start agents on behalf of a server elsewhere.

use std::collections::BTreeMap;

use crate::domain::{AgentId, Secret};

use super::reader::Section;

/// Credentials of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCredentials {
    /// Never empty.
    pub passkey: Secret,
}

pub(super) fn read(top: &mut Section<'_, '_>) -> BTreeMap<AgentId, AgentCredentials> {
    let reader = top.reader();
    let read_one = |(name, mut section): (super::reader::Name, Section<'_, '_>)| {
        let passkey = section.required("passkey").and_then(|field| field.secret());
        Some((name.id(reader)?, AgentCredentials { passkey: passkey? }))
    };
    top.named_sections("agents").into_iter().filter_map(read_one).collect()
}
