use std::path::PathBuf;

use super::*;
use crate::key::InstanceKey;
use crate::launch::StopReason;
use crate::time::Timestamp;
use crate::workspace::{WorkspaceMode, WorkspaceOverrides};

const NOW: Timestamp = Timestamp::from_millis(1_000);

fn agent(status: AgentStatus) -> Agent {
    Agent {
        id: "agt".parse().expect("an id"),
        name: String::new(),
        ai_type: "claude".to_owned(),
        system_prompt: String::new(),
        passkey: None,
        status,
        archived_from: None,
        created_at: NOW,
        revision: 1,
    }
}

fn project() -> Project {
    Project {
        workspace: WorkspaceMode::Shared,
        overrides: WorkspaceOverrides::default(),
        id: "prj".parse().expect("an id"),
        name: String::new(),
        key: "PRJ".parse().expect("a key"),
        is_key_edited: false,
        working_directory: PathBuf::from("dir"),
        status: ProjectStatus::Active,
        archived_from: None,
        created_at: NOW,
        revision: 1,
    }
}

fn launch(id: &str, purpose: Purpose, state: LaunchState) -> Launch {
    let key =
        InstanceKey::new("agt".parse().expect("an id"), "prj".parse().expect("an id"), purpose);
    let claim = Launch::claimed(id.parse().expect("an id"), key, "claude".to_owned(), NOW, NOW);
    Launch { state, ..claim }
}

fn starting() -> LaunchState {
    LaunchState::Starting { deadline: NOW }
}

fn running() -> LaunchState {
    LaunchState::Running { session: "ses".parse().expect("an id") }
}

fn stopping() -> LaunchState {
    LaunchState::Stopping { reason: StopReason::Person, stop_at: NOW }
}

/// Returns the decision in the ordinary case, in which everything is known, active and assigned.
fn decide_with(proof: Proof, open: &[Launch]) -> Result<Grant, Refusal> {
    decide_while(false, proof, open)
}

fn decide_while(is_chat_wanted: bool, proof: Proof, open: &[Launch]) -> Result<Grant, Refusal> {
    let agent = agent(AgentStatus::Active);
    let project = project();
    let facts = Facts {
        agent_id: &agent.id,
        project_id: &project.id,
        agent: Some(&agent),
        project: Some(&project),
        is_assigned: true,
        proof,
        presented_by: None,
        open,
        is_chat_wanted,
    };
    decide(&facts)
}

#[test]
fn what_is_wrong_with_the_project_is_told_only_after_the_proof() {
    let agent = agent(AgentStatus::Active);
    let project_id = "nowhere".parse().expect("an id");
    let facts = |proof, is_assigned| Facts {
        agent_id: &agent.id,
        project_id: &project_id,
        agent: Some(&agent),
        project: None,
        is_assigned,
        proof,
        presented_by: None,
        open: &[],
        is_chat_wanted: false,
    };
    assert_eq!(decide(&facts(Proof::None, true)), Err(Refusal::InvalidCredentials));
    assert!(matches!(decide(&facts(Proof::Passkey, true)), Err(Refusal::ProjectNotFound { .. })));
}

#[test]
fn an_agent_that_is_not_assigned_or_not_active_is_refused() {
    let project = project();
    let decide_for = |agent: Agent, is_assigned| {
        decide(&Facts {
            agent_id: &agent.id,
            project_id: &project.id,
            agent: Some(&agent),
            project: Some(&project),
            is_assigned,
            proof: Proof::Passkey,
            presented_by: None,
            open: &[],
            is_chat_wanted: false,
        })
    };
    assert!(matches!(
        decide_for(agent(AgentStatus::Active), false),
        Err(Refusal::NotAssigned { .. })
    ));
    assert_eq!(decide_for(agent(AgentStatus::Inactive), true), Err(Refusal::Inactive));
}

#[test]
fn a_passkey_takes_a_starting_launch_else_opens_its_own() {
    let claimed = launch("lch_1", Purpose::Task, starting());
    assert_eq!(
        decide_with(Proof::Passkey, std::slice::from_ref(&claimed)),
        Ok(Grant::On(Box::new(claimed)))
    );
    assert_eq!(decide_with(Proof::Passkey, &[]), Ok(Grant::OnNewLaunch(Purpose::Task)));
}

#[test]
fn a_passkey_is_refused_while_an_instance_runs_or_ends() {
    for state in [running(), stopping(), LaunchState::Ending] {
        let open = [launch("lch_1", Purpose::Task, state)];
        assert_eq!(decide_with(Proof::Passkey, &open), Err(Refusal::AlreadyRunning));
    }
}

#[test]
fn a_chat_does_not_count_for_a_task() {
    let chat = [launch("lch_1", Purpose::Chat, running())];
    assert_eq!(decide_with(Proof::Passkey, &chat), Ok(Grant::OnNewLaunch(Purpose::Task)));
}

#[test]
fn a_passkey_opens_the_chat_that_is_wanted_unless_there_is_one() {
    let decide_beside = |open: &[Launch]| decide_while(true, Proof::Passkey, open);
    assert_eq!(decide_beside(&[]), Ok(Grant::OnNewLaunch(Purpose::Chat)));
    let task = launch("lch_1", Purpose::Task, running());
    assert_eq!(decide_beside(std::slice::from_ref(&task)), Ok(Grant::OnNewLaunch(Purpose::Chat)));
    let chat = launch("lch_2", Purpose::Chat, stopping());
    assert_eq!(decide_beside(std::slice::from_ref(&chat)), Ok(Grant::OnNewLaunch(Purpose::Task)));
    assert_eq!(decide_beside(&[task, chat]), Err(Refusal::AlreadyRunning));
}

#[test]
fn a_ticket_opens_its_launch_until_that_is_stopped() {
    for (state, is_granted) in
        [(starting(), true), (running(), true), (stopping(), false), (LaunchState::Ending, false)]
    {
        let ticketed = launch("lch_1", Purpose::Task, state);
        let decision = decide_with(Proof::Ticket(Box::new(ticketed.clone())), &[]);
        let expected =
            if is_granted { Ok(Grant::On(Box::new(ticketed))) } else { Err(Refusal::LaunchEnded) };
        assert_eq!(decision, expected);
    }
}

#[test]
fn a_ticket_of_somebody_else_is_no_proof() {
    let mut ticketed = launch("lch_1", Purpose::Task, starting());
    ticketed.key.agent = "agt_other".parse().expect("an id");
    assert_eq!(
        decide_with(Proof::Ticket(Box::new(ticketed)), &[]),
        Err(Refusal::InvalidCredentials)
    );
}

#[test]
fn no_agent_comes_in_by_the_ticket_of_another_launch() {
    let agent = agent(AgentStatus::Active);
    let project = project();
    let ticketed = launch("lch_1", Purpose::Task, starting());
    let decide_for = |presenter: &str| {
        let presenter = presenter.parse().expect("an id");
        decide(&Facts {
            agent_id: &agent.id,
            project_id: &project.id,
            agent: Some(&agent),
            project: Some(&project),
            is_assigned: true,
            proof: Proof::Ticket(Box::new(ticketed.clone())),
            presented_by: Some(&presenter),
            open: &[],
            is_chat_wanted: false,
        })
    };
    assert!(decide_for("lch_1").is_ok());
    assert_eq!(decide_for("lch_2"), Err(Refusal::InvalidCredentials));
}
