//! `agents`: the credentials for starting agents of a server on another host.

use std::collections::BTreeMap;

use crate::domain::{AgentId, Secret, limits};

use super::reader::Section;
use super::report::Problem;

/// Credentials of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCredentials {
    /// The passkey, which is never empty.
    pub passkey: Secret,
}

pub(super) fn read(top: &mut Section<'_, '_>) -> BTreeMap<AgentId, AgentCredentials> {
    let reader = top.reader();
    let read_one = |(name, mut section): (super::reader::Name, Section<'_, '_>)| {
        let passkey = section.required("passkey").and_then(|field| {
            let passkey = field.secret()?;
            let is_taken = limits::PASSKEY.take(passkey.reveal());
            // The server would refuse the passkey in the same words, but could not name the place
            // in the file.
            is_taken
                .map_err(|refusal| {
                    field.note(Problem::new(refusal.to_string(), field.span()).label("here"));
                })
                .ok()?;
            Some(passkey)
        });
        Some((name.id(reader)?, AgentCredentials { passkey: passkey? }))
    };
    top.named_sections("agents").into_iter().filter_map(read_one).collect()
}
