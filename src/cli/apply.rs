//! `apply` creates agents, projects and tasks from a file.

use std::path::Path;

use super::client::Client;
use super::error::CliError;
use super::output::{Form, print_json, print_line};
use config::{Environment, manifest};
use service::{Applied, AppliedAs};

pub(super) async fn apply(
    client: &Client,
    path: &Path,
    environment: &Environment,
    form: Form,
) -> Result<(), CliError> {
    let manifest = manifest::load(path, environment).map_err(CliError::Configuration)?;
    for project in &manifest.wanted.projects {
        let directory = &project.working_directory;
        if !directory.is_dir() {
            eprintln!(
                "agent-coordinator: warning: there is no folder {} (yet)",
                directory.display()
            );
        }
    }
    let answer = client.post_or_problem::<Vec<Applied>>("/apply", &manifest.wanted).await?;
    let mut applied = match answer {
        Ok(applied) => applied,
        Err(problem) if problem.problems.is_empty() => return Err(problem.into()),
        Err(problem) => {
            let located = problem.problems.into_iter().map(|place| {
                let (section, id, field) = split(&place.path);
                (manifest.locate(section, id, field), place.message)
            });
            return Err(CliError::File(manifest.report(located).to_string()));
        }
    };
    for entry in &mut applied {
        entry.locate_warnings(&manifest);
        for warning in &entry.warnings {
            eprintln!("agent-coordinator: warning: {}", warning.message);
        }
    }
    if form.json {
        return print_json(&applied);
    }
    if applied.is_empty() {
        return print_line("nothing to apply");
    }
    let mut n_unchanged = 0;
    for entry in &applied {
        let what = match entry.what {
            AppliedAs::Created => "created",
            AppliedAs::Updated => "updated",
            AppliedAs::LeftOut => "left out",
            AppliedAs::Unchanged => {
                n_unchanged += 1;
                continue;
            }
        };
        print_line(&format!("{} {} {what}", entry.kind, entry.id))?;
    }
    if n_unchanged > 0 { print_line(&format!("{n_unchanged} unchanged")) } else { Ok(()) }
}

/// Splits a path such as `tasks.tsk_form.dependencies.0` into its parts. An id may contain dots;
/// sections and keys don't.
fn split(path: &str) -> (&str, &str, Option<(&str, Option<usize>)>) {
    let (section, rest) = path.split_once('.').unwrap_or((path, ""));
    let (rest, index) =
        match rest.rsplit_once('.').map(|(before, last)| (before, last.parse().ok())) {
            Some((before, Some(index))) => (before, Some(index)),
            _ => (rest, None),
        };
    match rest.rsplit_once('.') {
        Some((id, key)) => (section, id, Some((key, index))),
        None => (section, rest, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_apart_at_the_right_dots() {
        assert_eq!(
            split("tasks.tsk.1.dependencies.0"),
            ("tasks", "tsk.1", Some(("dependencies", Some(0))))
        );
        assert_eq!(split("tasks.tsk_form.parent"), ("tasks", "tsk_form", Some(("parent", None))));
    }
}
