//! Compares the forges of two configurations. A host that only one file contains is compared with a
//! host that has all defaults.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Applies, Changes, optional_path};
use crate::config::declaration::Keys;
use crate::config::forge::{LABEL_KEYS, default_base_url, file_key, repositories_key};
use crate::config::{ForgeHost, ForgeToken, Forges, WatchedRepository, Webhook};
use crate::domain::Secret;
use crate::domain::forge::{ForgeKind, LabelNames};

/// A part whose settings change is started again with the new ones.
const NOW: Applies = Applies::Now;

pub(super) fn compare(
    changes: &mut Changes,
    (old, old_dir): (&Forges, &Path),
    (new, new_dir): (&Forges, &Path),
) {
    let Forges { access, webhook, hosts, task_stop, pause_resume } = old;
    access.compare(&new.access, changes);
    let parts = |webhook: &Option<Webhook>| {
        webhook.clone().map(|Webhook { path, secret }| (path, secret)).unzip()
    };
    let ((old_path, old_secret), (new_path, new_secret)) = (parts(webhook), parts(&new.webhook));
    changes.shown(NOW, "forge.webhook.path", (&old_path, &new_path), |text| or_none(text.as_ref()));
    changes.hidden(NOW, "forge.webhook.secret", (&old_secret, &new_secret));
    for kind in ForgeKind::ALL {
        let of = |hosts: &[ForgeHost]| -> Vec<ForgeHost> {
            hosts.iter().filter(|host| host.kind == *kind).cloned().collect()
        };
        of_hosts(changes, *kind, &of(hosts), &of(&new.hosts));
    }
    task_stop.compare(&new.task_stop, changes);
    // The file is compared as it is written. It moves with `state_dir`, which is a change of its
    // own.
    let written = new.pause_resume.as_written(new_dir);
    pause_resume.as_written(old_dir).compare(&written, changes);
}

fn of_hosts(changes: &mut Changes, kind: ForgeKind, old: &[ForgeHost], new: &[ForgeHost]) {
    let blank = blank(kind);
    let n_hosts = old.len().max(new.len());
    for i in 0..n_hosts {
        let key = file_key(kind);
        let section = if n_hosts == 1 { key.to_owned() } else { format!("{key}[{i}]") };
        of_host(changes, &section, old.get(i).unwrap_or(&blank), new.get(i).unwrap_or(&blank));
    }
}

/// Returns a stand-in for a host that the other file does not contain.
fn blank(kind: ForgeKind) -> ForgeHost {
    ForgeHost {
        kind,
        base_url: default_base_url(kind).to_owned(),
        host: String::new(),
        token: ForgeToken::Given(Secret::new("")),
        bot_name: String::new(),
        labels: LabelNames::default(),
        repositories: Vec::new(),
    }
}

fn of_host(changes: &mut Changes, section: &str, old: &ForgeHost, new: &ForgeHost) {
    // The host follows the URL.
    let ForgeHost { kind, base_url, host: _, token, bot_name, labels, repositories } = old;
    changes.shown(NOW, format!("{section}.base_url"), (base_url, &new.base_url), Clone::clone);
    changes.hidden(NOW, format!("{section}.token"), (&given(token), &given(&new.token)));
    changes.shown(
        NOW,
        format!("{section}.token_file"),
        (&file(token), &file(&new.token)),
        |file| optional_path(*file),
    );
    let name = |name: &String| {
        if name.is_empty() { "none".to_owned() } else { name.clone() }
    };
    changes.shown(NOW, format!("{section}.bot_name"), (bot_name, &new.bot_name), name);
    for ((key, old), new) in LABEL_KEYS.into_iter().zip(labels.all()).zip(new.labels.all()) {
        changes.shown(NOW, format!("{section}.{key}"), (&old, &new), ToString::to_string);
    }
    let section = format!("{section}.{}", repositories_key(*kind));
    let names: BTreeSet<_> =
        repositories.iter().chain(&new.repositories).map(|watched| &watched.name).collect();
    for name in names {
        let of = |host: &ForgeHost| {
            let watched = host.repositories.iter().find(|watched| watched.name == *name);
            watched
                .map(|WatchedRepository { name: _, project, agents }| {
                    let agents: Vec<_> = agents.iter().map(ToString::to_string).collect();
                    (project.to_string(), agents.join(", "))
                })
                .unzip()
        };
        let ((old_project, old_agents), (new_project, new_agents)) = (of(old), of(new));
        changes.shown(
            NOW,
            format!("{section}.{name}.project_id"),
            (&old_project, &new_project),
            |text| or_none(text.as_ref()),
        );
        // The key is the one of the new file or the old one.
        let is_list = |host: &ForgeHost| {
            let watched = host.repositories.iter().find(|watched| watched.name == *name);
            watched.is_some_and(|watched| watched.agents.len() > 1)
        };
        let key = if is_list(old) || is_list(new) { "agents" } else { "agent" };
        changes.shown(NOW, format!("{section}.{name}.{key}"), (&old_agents, &new_agents), |text| {
            or_none(text.as_ref())
        });
    }
}

fn given(token: &ForgeToken) -> Option<&Secret> {
    match token {
        ForgeToken::Given(token) => Some(token).filter(|token| !token.reveal().is_empty()),
        ForgeToken::File(_) => None,
    }
}

fn file(token: &ForgeToken) -> Option<&Path> {
    match token {
        ForgeToken::Given(_) => None,
        ForgeToken::File(path) => Some(path),
    }
}

fn or_none(text: Option<&String>) -> String {
    text.map_or_else(|| "none".to_owned(), Clone::clone)
}
