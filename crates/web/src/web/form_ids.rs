//! The ids of the forms that make things. A form that is sent twice makes one thing.

use std::fmt;

use super::layout::Frame;
use crate::auth::Operator;
use crate::{Problem, RestState};
use domain::{CheckedForm, ProjectId, TaskId};

/// The header of a refusal that has another id for the form.
pub(super) const NEW_ID: &str = "form-id";

/// A form that makes a thing.
#[derive(Debug, Clone, Copy)]
pub(super) enum FormOf<'a> {
    Project,
    Agent,
    /// An agent for a project.
    Member(&'a ProjectId),
    Task(&'a ProjectId),
    Comment(&'a TaskId),
}

/// The name that the ids of the form are made for.
impl fmt::Display for FormOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project => write!(f, "project"),
            Self::Agent => write!(f, "agent"),
            Self::Member(project) => write!(f, "agent of {project}"),
            Self::Task(project) => write!(f, "task of {project}"),
            Self::Comment(task) => write!(f, "comment on {task}"),
        }
    }
}

impl FormOf<'_> {
    /// Returns an id for a form that is shown now.
    pub(super) fn new_id(self, frame: &Frame, state: &RestState) -> String {
        let person = frame.operator.as_ref().map_or("", |operator| &operator.name);
        state.service.new_form_id(person, &self.to_string()).to_string()
    }

    /// Reads the id of a form that was sent.
    pub(super) fn check(
        self,
        text: &str,
        operator: &Operator,
        state: &RestState,
    ) -> Result<CheckedForm, Problem> {
        Ok(state.service.check_form(&operator.name, &self.to_string(), text)?)
    }
}
