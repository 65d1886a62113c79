//! Leaves the parts of a manifest out that name something deleted.
//!
//! A deletion is final, and a manifest is applied again at each start. A daemon must start although
//! its manifest still lists what a person deleted. [`Catalog::apply`](super::Catalog::apply) calls
//! this module before it writes anything.

use std::collections::BTreeSet;
use std::mem;

use serde::{Deserialize, Serialize};

use config::manifest::Manifest;
use domain::{Removable, TaskId};
use store::rows::{deletions, tasks};
use store::{Read, StoreError};

use super::{Applied, AppliedAs, EntryProblem, Field, Wanted};

/// The reason why a part of a manifest is left out: what it names was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// The key of the entry that names it; none if it is the entry itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The element, from 0, if only one of a list is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    pub message: String,
}

/// The facts about a manifest that decide what is left out.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// All deleted things that the manifest names.
    pub deleted: BTreeSet<Removable>,
    /// The tasks of the manifest that exist. The set is empty if nothing was deleted.
    pub stored: BTreeSet<TaskId>,
}

impl Facts {
    pub fn read(tx: &mut Read<'_>, wanted: &Wanted) -> Result<Self, StoreError> {
        let mut facts = Self::default();
        for of in list_named(wanted) {
            if deletions::name(tx, &of)?.is_some() {
                facts.deleted.insert(of);
            }
        }
        if facts.deleted.is_empty() {
            return Ok(facts);
        }
        for entry in &wanted.tasks {
            if tasks::get(tx, &entry.id)?.is_some() {
                facts.stored.insert(entry.id.clone());
            }
        }
        Ok(facts)
    }
}

/// Returns all things that a manifest names.
fn list_named(wanted: &Wanted) -> BTreeSet<Removable> {
    let agents = wanted.agents.iter().map(|entry| Removable::Agent(entry.id.clone()));
    let mut named: BTreeSet<Removable> = agents.collect();
    for entry in &wanted.projects {
        named.insert(Removable::Project(entry.id.clone()));
        named.extend(entry.agents.iter().cloned().map(Removable::Agent));
    }
    for entry in &wanted.tasks {
        named.insert(Removable::Project(entry.project.clone()));
        named.extend(entry.assignee.iter().cloned().map(Removable::Agent));
        let tasks = [&entry.id].into_iter().chain(&entry.parent).chain(&entry.dependencies);
        named.extend(tasks.cloned().map(Removable::Task));
    }
    named
}

/// Takes out of `wanted` what was deleted, and what cannot exist without it. Returns a warning for
/// each entry and each element of a list that was taken out.
pub(super) fn take_out(wanted: &mut Wanted, facts: &Facts) -> Vec<EntryProblem> {
    let mut taking = Taking { facts, gone: facts.deleted.clone(), warnings: Vec::new() };
    wanted.agents.retain(|entry| taking.keeps(&Removable::Agent(entry.id.clone()), &[]));
    wanted.projects.retain(|entry| taking.keeps(&Removable::Project(entry.id.clone()), &[]));
    for entry in &mut wanted.projects {
        let of = Removable::Project(entry.id.clone());
        taking.shorten(&of, "agents", &mut entry.agents, Removable::Agent);
    }
    // A task may name a later one as its parent, so an entry may go because of a later one.
    let mut n_before = usize::MAX;
    while wanted.tasks.len() < n_before {
        n_before = wanted.tasks.len();
        wanted.tasks.retain(|entry| {
            let mut needs = vec![("project", Removable::Project(entry.project.clone()))];
            let assignee = entry.assignee.clone().map(Removable::Agent);
            let parent = entry.parent.clone().map(Removable::Task);
            needs.extend(assignee.map(|agent| ("assignee", agent)));
            needs.extend(parent.map(|task| ("parent", task)));
            taking.keeps(&Removable::Task(entry.id.clone()), &needs)
        });
    }
    for entry in &mut wanted.tasks {
        let of = Removable::Task(entry.id.clone());
        taking.shorten(&of, "dependencies", &mut entry.dependencies, Removable::Task);
    }
    taking.warnings
}

struct Taking<'a> {
    facts: &'a Facts,
    /// The named things that do not exist after the manifest is applied.
    gone: BTreeSet<Removable>,
    warnings: Vec<EntryProblem>,
}

impl Taking<'_> {
    /// Returns whether an entry stays. `needs` are the things that it cannot exist without, each
    /// with its key.
    fn keeps(&mut self, of: &Removable, needs: &[(&'static str, Removable)]) -> bool {
        let what = format!("{} `{}`", of.kind(), of.id());
        if self.facts.deleted.contains(of) {
            let message = format!(
                "the {what} was deleted, so it is left out; \
                remove the entry, or give it another id"
            );
            self.warn(of, None, message);
            return false;
        }
        let Some((key, needed)) = needs.iter().find(|(_, needed)| self.gone.contains(needed))
        else {
            return true;
        };
        let message = format!(
            "the {what} is left out, because its {key} `{}` {}; \
            remove the entry, or name another {key}",
            needed.id(),
            self.state(needed)
        );
        self.warn(of, Some((key, None)), message);
        if !matches!(of, Removable::Task(id) if self.facts.stored.contains(id)) {
            self.gone.insert(of.clone());
        }
        false
    }

    /// Takes what is gone out of a list of an entry that stays.
    fn shorten<T: Clone>(
        &mut self,
        of: &Removable,
        key: &'static str,
        list: &mut Vec<T>,
        element_of: fn(T) -> Removable,
    ) {
        for (index, element) in mem::take(list).into_iter().enumerate() {
            let named = element_of(element.clone());
            if !self.gone.contains(&named) {
                list.push(element);
                continue;
            }
            let message = format!(
                "the {} `{}` {}, so it is left out of the {key} of `{}`; \
                remove it from the list",
                named.kind(),
                named.id(),
                self.state(&named),
                of.id()
            );
            self.warn(of, Some((key, Some(index))), message);
        }
    }

    fn state(&self, gone: &Removable) -> &'static str {
        if self.facts.deleted.contains(gone) { "was deleted" } else { "is left out" }
    }

    fn warn(&mut self, of: &Removable, field: Option<Field>, message: String) {
        self.warnings.push(EntryProblem { of: of.clone(), field, message });
    }
}

/// Gives problems in lists the places that their elements have in the file.
pub(super) fn restore_places(problems: &mut [EntryProblem], warnings: &[EntryProblem]) {
    for problem in problems {
        let Some((key, Some(index))) = &mut problem.field else { continue };
        let is_of = |it: &&EntryProblem| it.of == problem.of;
        // The warnings of a list are in its order.
        for taken in warnings.iter().filter(is_of).filter_map(|it| it.field) {
            *index += usize::from(taken.0 == *key && taken.1.is_some_and(|at| at <= *index));
        }
    }
}

/// Adds the warnings to the results of their entries. An entry without a result was left out.
pub(super) fn add_warnings(applied: &mut Vec<Applied>, warnings: Vec<EntryProblem>) {
    for EntryProblem { of, field, message } in warnings {
        let key = field.map(|(key, _)| key.to_owned());
        let warning = LeftOut { key, index: field.and_then(|(_, index)| index), message };
        let is_of = |entry: &&mut Applied| entry.kind == of.kind().as_str() && entry.id == of.id();
        match applied.iter_mut().find(is_of) {
            Some(entry) => entry.warnings.push(warning),
            None => applied.push(Applied::new(&of, AppliedAs::LeftOut, vec![warning])),
        }
    }
}

impl Applied {
    /// Puts the places in the file of the manifest before the warnings.
    pub fn locate_warnings(&mut self, manifest: &Manifest) {
        let section = format!("{}s", self.kind);
        for warning in &mut self.warnings {
            let field = warning.key.as_deref().map(|key| (key, warning.index));
            let at = manifest.locate(&section, &self.id, field);
            warning.message = manifest.problem_at(at, warning.message.as_str()).on_one_line();
        }
    }
}

#[cfg(test)]
mod tests;
