//! The ids of the forms of pages.

use domain::{CheckedForm, FormId, Refusal, Secret};

use super::Service;

impl Service {
    /// Returns the id of a new form of a person. `form` names the form and what it is about.
    pub fn new_form_id(&self, person: &str, form: &str) -> FormId {
        let unique = self.core.world.unique();
        FormId::new(&self.form_key(), unique, person, form, self.core.now())
    }

    /// Checks that the id of a form was made for this form of this person, less than a day ago.
    ///
    /// # Errors
    /// `FormRefused`.
    pub fn check_form(&self, person: &str, form: &str, text: &str) -> Result<CheckedForm, Refusal> {
        let id = text.parse::<FormId>();
        let checked = id.and_then(|id| id.check(&self.form_key(), person, form, self.core.now()));
        checked.map_err(|fault| Refusal::FormRefused { form: form.to_owned(), fault })
    }

    /// The servers of one database share this key, as they share that of tickets. A restart keeps
    /// it.
    fn form_key(&self) -> Secret {
        self.core.settings().ticket_key.derive("", "forms of pages")
    }
}
