//! Runs each statement of the program on the schema, and checks that none is missing.
//!
//! [`all`] runs the functions of `crates/store/src/rows`, with each combination of the fields of a filter, and
//! records the statements that the connection prepares. Each SQL text of the sources must be in a
//! recorded statement. A statement that is added and not run makes a test fail.

mod sources;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use domain::agent::{AgentStatus, ProjectStatus};
use domain::attention::Mark;
use domain::chat::Sender;
use domain::conversation::FreshReason;
use domain::creation::Creations;
use domain::event::NewEvent;
use domain::launch::Outcome;
use domain::notice::WorkChange;
use domain::repeat::Content;
use domain::spend::{Day, Register};
use domain::{
    Account, Agent, AttentionId, Credential, Execution, ForgeItem, Launch, LaunchState, Notice,
    Project, Purpose, Removable, Session, StartHistory, Task, TaskStatus, Usage,
};
use futures::FutureExt as _;
use store::rows::project_keys::{self, KeyRecord};
use store::rows::{
    Context, Transaction, accounts, agents, assignments, attention, checks, comments,
    conversations, creation_digests, credentials, deletions, events, executions, forge_items,
    launch_retention, launch_spend, launches, messages, notices, output_tails, pauses, projects,
    sessions, start_histories, startable, tasks, workspaces,
};
use store::{
    ArchivedTasks, BoxError, Cells, ChatEnd, Engine, Entity, HistoryFilter, LaunchEnd,
    LaunchFilter, LaunchTraits, MessageFilter, Read, Settings, StoreError, TaskFilter, Value, open,
};

use self::sources::{is_in, is_sql, literals, literals_after, sources};
use super::observed::{Observed, Observer};
use super::old::WRITTEN;
use super::rows::{
    assignment, at, check, comment, conversation, execution, id, launch, message, project, task,
    task_key, ticket, workspace,
};

/// A statement that was prepared, with the kinds of its parameters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Statement {
    /// The file of `crates/store/src/rows` that it belongs to, without `.rs`.
    pub(super) of: &'static str,
    pub(super) sql: String,
    pub(super) args: Vec<&'static str>,
}

/// Returns all statements of the program.
pub(super) fn all() -> BTreeSet<Statement> {
    let record = Arc::new(Mutex::new(Record::default()));
    let recorder = Recorder(record.clone());
    let engine = open::memory_through(|inner| Box::new(Observed(inner, recorder))).unwrap();
    let bed = Bed { engine, record, rows: old_rows() };
    entities(&bed);
    changes(&bed);
    questions(&bed);
    filters(&bed);
    forgets(&bed);
    let record = bed.record.lock().unwrap();
    record.statements.clone()
}

#[derive(Default)]
struct Record {
    of: &'static str,
    statements: BTreeSet<Statement>,
}

struct Recorder(Arc<Mutex<Record>>);

impl Observer for Recorder {
    fn statement(&mut self, sql: &str, args: &[Value<'_>]) {
        let args = args.iter().map(kind).collect();
        let mut record = self.0.lock().unwrap();
        let statement = Statement { of: record.of, sql: sql.to_owned(), args };
        record.statements.insert(statement);
    }
}

fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "NULL",
        Value::Int(_) => "BIGINT",
        Value::Bool(_) => "BOOLEAN",
        Value::Text(_) => "TEXT",
    }
}

/// The databases on which the statements are run.
struct Bed {
    engine: Engine,
    record: Arc<Mutex<Record>>,
    /// A database of an earlier version with rows in each table.
    rows: (tempfile::TempDir, Engine),
}

impl Bed {
    /// Runs functions of the file `of` that read.
    fn read<T: Send + 'static>(
        &self,
        of: &'static str,
        body: impl FnOnce(&mut Read<'_>) -> Result<T, StoreError> + Send + 'static,
    ) {
        self.record.lock().unwrap().of = of;
        self.engine.read(body).now_or_never().expect("memory answers at once").unwrap();
    }

    /// Runs functions of the file `of` that write.
    fn write(
        &self,
        of: &'static str,
        body: impl FnMut(&mut Transaction<'_>) -> Result<(), StoreError> + Send + 'static,
    ) {
        self.record.lock().unwrap().of = of;
        let context = Context::new(at(1), "unique".to_owned(), None);
        let wrote = self.engine.write_with(context, body);
        wrote.now_or_never().expect("memory answers at once").unwrap();
    }

    /// Inserts, updates and reads the rows of an entity.
    fn entity<E: Entity + Send + 'static>(&self, of: &'static str) {
        let read: Result<Vec<E>, StoreError> =
            futures::executor::block_on(self.rows.1.read(|tx| tx.list::<E>("", &[])));
        let rows = read.unwrap();
        assert!(!rows.is_empty(), "the old database has no {}", E::NAME);
        let mut rows: Vec<_> = rows.into_iter().map(New).collect();
        self.write(of, move |tx| {
            for row in &mut rows {
                tx.put(row)?;
                tx.put(&row.0)?;
            }
            Ok(())
        });
    }
}

fn old_rows() -> (tempfile::TempDir, Engine) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch(WRITTEN).unwrap();
    let engine = open::file(&path, Settings::default()).unwrap();
    (folder, engine)
}

/// A row that is treated as new.
struct New<E>(E);

impl<E: Entity> Entity for New<E> {
    const NAME: &'static str = E::NAME;
    const TABLE: &'static str = E::TABLE;
    const N_KEY: usize = E::N_KEY;

    fn columns() -> Vec<&'static str> {
        E::columns()
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        E::read(cells).map(Self)
    }

    fn values(&self) -> Vec<Value<'_>> {
        self.0.values()
    }

    fn revision(&self) -> i64 {
        0
    }
}

fn entities(bed: &Bed) {
    bed.entity::<Account>("accounts");
    bed.entity::<Agent>("agents");
    bed.entity::<Credential>("credentials");
    bed.entity::<Execution>("executions");
    bed.entity::<ForgeItem>("forge_items");
    bed.entity::<Launch>("launches");
    bed.entity::<Notice>("notices");
    bed.entity::<StartHistory>("start_histories");
    bed.entity::<Project>("projects");
    bed.entity::<Session>("sessions");
    bed.entity::<Task>("tasks");
    // This launch ended, with work.
    bed.write("launches", |tx| {
        let state = LaunchState::Ended { outcome: Outcome::Completed, at: at(500) };
        tx.put(&Launch { state, ..launch("ended", "a", "p") })?;
        tx.put(&execution("e_ended", "ended", "worked_on")).map(drop)
    });
}

fn changes(bed: &Bed) {
    bed.write("assignments", |tx| {
        assignments::add(tx, &assignment("p", "a"))?;
        assignments::remove(tx, &assignment("p", "a"))
    });
    bed.write("events", |tx| {
        let (agent, project, launch, task) = (Some(id("a")), Some(id("p")), None, Some(id("t")));
        let (kind, detail) = ("task.status", Some("todo".to_owned()));
        events::add(tx, &NewEvent { at: at(1), kind, agent, project, launch, task, detail })
    });
    bed.write("launches", |tx| {
        launches::set_creations(tx, &id("l1"), Creations { n_tasks: 2, n_messages: 3 })
    });
    bed.write("messages", |tx| messages::add(tx, &message("m", "a", "p")));
    bed.write("comments", |tx| comments::add(tx, &task("t", "p", None), &comment("c", "t")));
    bed.write("output_tails", |tx| output_tails::put(tx, &id("l1"), "tail"));
    bed.write("launch_spend", |tx| {
        let usage = Usage { turns: 1, ..Usage::default() };
        launch_spend::raise(tx, &id("l1"), Register { day: Day::from_number(7), usage })
    });
    bed.write("attention", |tx| {
        let item: AttentionId = id("att_1");
        let until = Some(at(9));
        let mark = Mark { item: item.clone(), person: "ann".to_owned(), until, marked_at: at(1) };
        attention::put(tx, &mark)?;
        attention::put_read(tx, &mark)?;
        attention::remove(tx, &item, "ann")?;
        attention::put(tx, &mark)?;
        attention::forget_before(tx, at(1))
    });
    bed.write("pauses", |tx| {
        pauses::set(tx, Some(at(1)))?;
        pauses::set_file(tx, Some("/pause"))
    });
    bed.write("creation_digests", |tx| {
        let of = Removable::Task(id("t"));
        let digest = Content::of_task(&task("t", "p", None)).digest([1; 16]);
        creation_digests::add(tx, &of, &digest)?;
        assert_eq!(creation_digests::get(tx, &of)?, Some(digest));
        creation_digests::forget(tx, &of)
    });
    deletion(bed);
    bed.write("project_keys", |tx| {
        let project = project("numbered");
        let (key, id) = (project.key.clone(), project.id.clone());
        tx.put(&project)?;
        project_keys::put(tx, &KeyRecord { key, project: id, next_number: 7 })?;
        let taken = project_keys::take_short_id(tx, &project.id)?;
        assert_eq!(taken.map(|taken| taken.number), Some(7));
        Ok(())
    });
    bed.write("workspaces", |tx| {
        tx.put(&workspace("w"))?;
        let again = workspaces::get(tx, &id("w"))?.expect("it was written");
        tx.put(&again).map(drop)
    });
    bed.write("checks", |tx| {
        checks::put(tx, &check("c"))?;
        let again = checks::find_of_launch(tx, &id("l1"))?.expect("it was written");
        checks::put(tx, &again)
    });
    bed.write("conversations", |tx| {
        conversations::put(tx, &conversation("v"))?;
        let open = conversations::get(tx, &id("v"))?.expect("it was written");
        conversations::put(tx, &open.closed(FreshReason::Refused, at(9)))?;
        conversations::put(tx, &conversation("v2"))
    });
    bed.write("tasks", |tx| tasks::set_key(tx, &id("p"), &"OTHER".parse().unwrap()));
}

/// Deletes things of each kind.
fn deletion(bed: &Bed) {
    bed.write("deletions", move |tx| {
        let task = task("t_gone", "p_gone", Some("a_gone"));
        for (of, tasks) in [
            (Removable::Task(id("t_gone")), vec![task]),
            (Removable::Agent(id("a_gone")), Vec::new()),
            (Removable::Project(id("p_gone")), Vec::new()),
        ] {
            deletions::count_messages(tx, &of)?;
            deletions::count_launches(tx, &of)?;
            deletions::list_wanted_chats(tx, &of)?;
            deletions::add(tx, &of, of.id(), &tasks)?;
            assert_eq!(deletions::name(tx, &of)?.as_deref(), Some(of.id()));
        }
        assert_eq!(deletions::list_with_launches(tx)?.len(), 1);
        deletions::note_without_launches(tx, &id("p_gone"))?;
        assert_eq!(deletions::list_with_launches(tx)?.len(), 0);
        deletions::list_names(tx)?;
        deletions::find_short(tx, &"SHOP-1".parse().unwrap())?;
        deletions::has_empty_workspaces(tx)?;
        deletions::forget_workspaces(tx)
    });
}

fn questions(bed: &Bed) {
    bed.read("accounts", |tx| Ok((accounts::get(tx, "claude")?, accounts::list_parked(tx)?)));
    bed.read("agents", |tx| {
        agents::list_ids(tx)?;
        agents::names(tx, &BTreeSet::from([id("a")]))?;
        agents::find_with_prefix(tx, "a")?;
        agents::list_names(tx)?;
        Ok((agents::get(tx, &id("a"))?, agents::list(tx)?, agents::count(tx)?))
    });
    bed.read("assignments", |tx| {
        assignments::exists(tx, &assignment("p", "a"))?;
        assignments::list(tx)
    });
    bed.read("checks", |tx| checks::list_of_task(tx, &id("t")));
    bed.read("conversations", |tx| {
        conversations::newest_of(tx, &id("t"), &id("a"))?;
        conversations::was_refused_since(tx, &id("t"), &id("a"), at(1))?;
        conversations::is_in_use(tx, &id("v"))
    });
    bed.read("comments", |tx| {
        comments::get(tx, &id("c"))?;
        comments::list_newest(tx, &id("t"), 2)?;
        comments::count(tx, [id("t")].iter())?;
        comments::list_of_task(tx, &id("t"))
    });
    bed.read("credentials", |tx| {
        credentials::find_by_secret(tx, &ticket("c"))?;
        Ok((credentials::get(tx, &id("c"))?, credentials::list(tx)?))
    });
    bed.read("events", |tx| {
        events::list(tx, 0, 9)?;
        events::list_of_task(tx, &id("t"), 0, 9)?;
        events::list_milestones_of_task(tx, &id("t"), 9)?;
        events::last_author_of_task(tx, &id("t"))?;
        events::mover_of_task(tx, &id("t"))?;
        events::list_stopped_by(tx, &BTreeSet::from([id("t"), id("u")]))?;
        events::find_who_stopped(tx, &id("a"), &id("p"), at(1))?;
        Ok((events::span(tx)?, events::last_before(tx, at(9))?))
    });
    bed.read("executions", |tx| {
        executions::list_of_launches(tx, &[id("l1"), id("l2")])?;
        Ok((executions::list_of_task(tx, &id("t"))?, executions::list_of_launch(tx, &id("l1"))?))
    });
    bed.read("forge_items", |tx| {
        let all = forge_items::list_ended(tx, 9)?;
        forge_items::get(tx, &all[0].id)?;
        forge_items::find_open(tx, &all[0].key)?;
        forge_items::find_of_task(tx, &id("t"))?;
        forge_items::list_tasks(tx, &id("p"))?;
        forge_items::list_open(tx)?;
        forge_items::list_ended_before(tx, at(9), 9)
    });
    bed.read("launches", |tx| {
        launches::get(tx, &id("l1"))?;
        launches::find_by_ticket(tx, &ticket("l1"))?;
        launches::list_of_ids(tx, &[id("l1")])?;
        launches::agents_of(tx, &BTreeSet::from([id("l1")]))?;
        launches::list_open(tx)?;
        launches::creations(tx, &id("l1"))?;
        launches::is_open(tx, &task_key("a", "p"))?;
        for change in work_changes() {
            launches::list_concerned(tx, &change)?;
        }
        launches::list_ended_since(tx, at(1))
    });
    bed.read("launch_spend", |tx| {
        launch_spend::of_project_since(tx, &id("p"), at(1))?;
        launch_spend::of_tasks(tx, &[id("t")])?;
        for since in [None, Some(Day::from_number(7))] {
            launch_spend::read_all(tx, since, |_, _| {})?;
        }
        launch_spend::totals(tx)
    });
    bed.read("messages", |tx| {
        messages::get(tx, &id("m"))?;
        messages::list_chats(tx)?;
        messages::list_chats_after(tx, 0)?;
        messages::newest(tx)?;
        messages::last_before(tx, &assignment("p", "a"), at(9))
    });
    bed.read("notices", |tx| {
        notices::get(tx, &id("n"))?;
        Ok((notices::list_of_launch(tx, &id("l1"))?, notices::list_open(tx)?))
    });
    bed.read("attention", |tx| attention::list_of(tx, "ann"));
    bed.read("output_tails", |tx| output_tails::get(tx, &id("l1")));
    bed.read("start_histories", |tx| {
        start_histories::list_suspended(tx)?;
        start_histories::list_misconfigured(tx)?;
        Ok((start_histories::get(tx, &task_key("a", "p"))?, start_histories::list_held(tx)?))
    });
    bed.read("launch_retention", |tx| {
        let all = launch_retention::launches(tx, at(1_000), None, 9)?;
        assert!(all.iter().any(|launch| !launch.newest_of.is_empty()));
        launch_retention::launches(tx, at(1_000), all.first(), 9)
    });
    bed.read("pauses", |tx| Ok((pauses::since(tx)?, pauses::file(tx)?, pauses::is_paused(tx)?)));
    bed.read("project_keys", |tx| {
        project_keys::get(tx, &"SHOP".parse().unwrap())?;
        project_keys::list(tx)?;
        project_keys::list_of_project(tx, &id("p"))
    });
    bed.read("projects", |tx| {
        projects::names(tx, &BTreeSet::from([id("p")]))?;
        projects::find_with_prefix(tx, "p")?;
        Ok((projects::get(tx, &id("p"))?, projects::list(tx)?, projects::count(tx)?))
    });
    bed.read("sessions", |tx| {
        sessions::get(tx, &id("s"))?;
        sessions::find_by_token(tx, &ticket("s"))?;
        Ok((sessions::list_open(tx)?, sessions::list_of_launch(tx, &id("l1"))?))
    });
    bed.read("startable", |tx| {
        Ok((startable::of_key(tx, &task_key("a", "p"))?, startable::list(tx)?))
    });
    bed.read("workspaces", |tx| {
        workspaces::get(tx, &id("w"))?;
        workspaces::newest_of_task(tx, &id("t"))?;
        workspaces::list(tx, None)?;
        workspaces::list(tx, Some(&id("p")))?;
        workspaces::list_all(tx, None)?;
        workspaces::list_all(tx, Some(&id("p")))?;
        workspaces::exist_in(tx, &id("p"))?;
        workspaces::list_wanted(tx)?;
        workspaces::list_to_keep(tx)?;
        workspaces::list_of_task(tx, &id("t"))?;
        workspaces::list_to_forget(tx)?;
        workspaces::list_broken(tx)?;
        workspaces::list_not_kept(tx)?;
        workspaces::list_unmerged(tx, None)?;
        workspaces::list_unmerged(tx, Some(&id("p")))?;
        workspaces::list_finished(tx)
    });
    bed.read("tasks", |tx| {
        tasks::list_by_number(tx, &id("p"), 0, 9)?;
        tasks::list_assignees(tx, &id("p"))?;
        tasks::list_links(tx, &id("p"))?;
        tasks::list_newest_open(tx, &id("p"), 9)?;
        let task = tasks::get(tx, &id("t"))?.unwrap();
        tasks::list_dependents(tx, &task)?;
        Ok((tasks::list_wanted(tx, None)?, tasks::list_wanted(tx, Some(&id("p")))?))
    });
    bed.read("tasks", |tx| {
        tasks::get(tx, &id("t"))?;
        tasks::find_short(tx, &"SHOP-1".parse().unwrap())?;
        tasks::list_of_ids(tx, [id("t")])?;
        tasks::list_failed(tx)?;
        tasks::count_by_status(tx)?;
        tasks::oldest_waiting(tx)?;
        tasks::count_open(tx)?;
        tasks::list_of_numbers(tx, &id("p"), &(1..=9), 9)?;
        tasks::list_with_prefix(tx, "t", 9)
    });
}

/// Returns a change of each kind of work.
fn work_changes() -> [WorkChange; 4] {
    let task = Box::new(task("t", "p", Some("a")));
    [
        WorkChange::Task { before: task.clone(), after: task },
        WorkChange::Unassigned(assignment("p", "a")),
        WorkChange::Project { project: id("p"), status: ProjectStatus::Active },
        WorkChange::Agent { agent: id("a"), status: AgentStatus::Active },
    ]
}

/// Runs each combination of the fields of a filter. A new field does not compile here.
fn filters(bed: &Bed) {
    for n in 0..1 << 4 {
        let has = |bit: u32| n >> bit & 1 == 1;
        for status in TaskStatus::ALL.iter().copied().map(Some).chain([None]) {
            let wanted = TaskFilter {
                project: has(0).then(|| id("p")),
                assignee: has(1).then(|| id("a")),
                parent: has(2).then(|| id("t")),
                only_open: has(3),
                status,
                archived: ArchivedTasks::Included,
            };
            for archived in [ArchivedTasks::Included, ArchivedTasks::LeftOut, ArchivedTasks::Only] {
                let wanted = TaskFilter { archived, ..wanted.clone() };
                bed.read("tasks", move |tx| tasks::list(tx, &wanted));
            }
        }
    }
    for n in 0..1 << 5 {
        let has = |bit: u32| n >> bit & 1 == 1;
        let wanted = LaunchFilter {
            agent: has(0).then(|| id("a")),
            project: has(1).then(|| id("p")),
            purpose: has(2).then_some(Purpose::Chat),
            only_ended: has(3),
            after: has(4).then(|| id("l1")),
            limit: 9,
            ..LaunchFilter::default()
        };
        for end in [None, Some(LaunchEnd::None), Some(LaunchEnd::Any), Some(LaunchEnd::Bad)] {
            let wanted = LaunchFilter { end, since: has(4).then(|| at(1)), ..wanted.clone() };
            bed.read("launches", move |tx| {
                launches::list_ends(tx, &wanted)?;
                launches::list(tx, &wanted)
            });
        }
        let found = LaunchTraits {
            tasks: has(0).then(|| id("t")).into_iter().collect(),
            agents: has(1).then(|| id("a")).into_iter().collect(),
            purposes: has(2).then_some(Purpose::Chat).into_iter().collect(),
            outcomes: has(3).then_some("lost").into_iter().collect(),
        };
        let wanted = LaunchFilter { words: vec![found], ..wanted };
        bed.read("launches", move |tx| launches::list(tx, &wanted));
        let wanted = MessageFilter {
            agent: id("a"),
            project: id("p"),
            after: has(0).then_some(1),
            before: has(1).then_some(9),
            sender: has(2).then_some(Sender::User),
            only_visible: has(3),
            end: if has(4) { ChatEnd::Newest } else { ChatEnd::Oldest },
            limit: 9,
        };
        bed.read("messages", move |tx| messages::list(tx, &wanted));
    }
    for n in 0..1 << 6 {
        bed.read("sessions", move |tx| sessions::list(tx, &history(n, "s")));
        bed.read("executions", move |tx| executions::list(tx, &history(n, "e")));
        bed.read("notices", move |tx| notices::list(tx, &history(n, "n")));
    }
}

fn history<Id: std::str::FromStr<Err: std::fmt::Debug>>(n: u32, name: &str) -> HistoryFilter<Id> {
    let has = |bit: u32| n >> bit & 1 == 1;
    HistoryFilter {
        agent: has(0).then(|| id("a")),
        project: has(1).then(|| id("p")),
        launch: has(2).then(|| id("l1")),
        task: has(3).then(|| id("t")),
        only_open: has(4),
        after: has(5).then(|| id(name)),
        limit: 9,
    }
}

fn forgets(bed: &Bed) {
    bed.write("credentials", |tx| credentials::forget(tx, &id("c")));
    bed.write("events", |tx| events::forget(tx, 1));
    bed.write("forge_items", |tx| forge_items::forget(tx, &id("i")));
    bed.write("launches", |tx| launches::forget(tx, &id("ended")));
    bed.write("messages", |tx| messages::forget(tx, &assignment("p", "a"), 1));
}

#[test]
fn each_statement_of_the_program_is_prepared() {
    let all = all();
    let mut n_literals = 0;
    for (path, code) in sources("crates/store/src/rows") {
        let file = path.file_stem().unwrap().to_str().unwrap();
        // The pieces of these files are in the statements of the others.
        let is_shared = ["filter", "record"].contains(&file);
        let is_of = |statement: &Statement| statement.of == file || is_shared;
        for literal in literals(&code).into_iter().filter(|text| is_sql(text)) {
            n_literals += 1;
            let is_run =
                |statement: &Statement| is_of(statement) && is_in(&literal, &statement.sql);
            assert!(
                all.iter().any(is_run),
                "{} has SQL that no test prepares: add it to {}: `{literal}`",
                path.display(),
                file!()
            );
        }
        for table in literals_after(&code, "\nentity! {") {
            for start in [format!("INSERT INTO {table} ("), format!("UPDATE {table} SET ")] {
                let is_run =
                    |statement: &Statement| is_of(statement) && is_in(&start, &statement.sql);
                assert!(all.iter().any(is_run), "no test prepares `{start}…`: add the entity");
            }
        }
    }
    assert!(n_literals > 70, "the literals are found");
}

#[test]
fn only_the_rows_and_the_store_have_sql() {
    let of_store = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/store");
    for (path, code) in sources("src").into_iter().chain(sources("crates")) {
        if path.starts_with(&of_store) {
            continue;
        }
        for literal in literals(&code) {
            let is_statement = ["SELECT ", "INSERT INTO ", "DELETE FROM ", "PRAGMA "]
                .iter()
                .any(|start| literal.starts_with(start));
            assert!(!is_statement, "{} has SQL: `{literal}`", path.display());
        }
    }
}
