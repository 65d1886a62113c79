use super::*;

fn impossible(from: TaskStatus) -> Refusal {
    Refusal::ImpossibleStatus { task: "SHOP-1".to_owned(), from, to: TaskStatus::InProgress }
}

fn open_dependencies() -> Refusal {
    let open = vec!["SHOP-2".to_owned(), "SHOP-3".to_owned()];
    Refusal::DependenciesOpen { task: "SHOP-1".to_owned(), open }
}

fn whole(text: &str) -> JapaneseText {
    JapaneseText::Whole(text.to_owned())
}

#[test]
fn a_japanese_text_has_the_values_and_no_english_word() {
    let text = "SHOP-1 は「完了」のため、「進行中」には変更できません";
    assert_eq!(impossible(TaskStatus::Done).japanese(), Some(whole(text)));
    let text = "SHOP-1 の依存タスクが完了していません: SHOP-2、SHOP-3";
    assert_eq!(open_dependencies().japanese(), Some(whole(text)));
}

#[test]
fn a_hint_is_given_in_both_languages_while_it_applies() {
    let refusal = impossible(TaskStatus::Done);
    assert_eq!(refusal.hint(Language::English), Some("reopen it first: set it to todo"));
    assert_eq!(refusal.hint(Japanese), Some("先に未着手に戻してください"));
    let refusal = impossible(TaskStatus::Blocked);
    assert_eq!((refusal.hint(Language::English), refusal.hint(Japanese)), (None, None));
    assert_eq!(Refusal::SessionEnded.hint(Japanese), None, "only agents meet it");
}

#[test]
fn one_of_a_batch_is_refused_as_it_would_be_alone() {
    let alone = open_dependencies();
    let batch = Refusal::InBatch {
        local_id: "a".to_owned(),
        problem: "it waits".to_owned(),
        refusal: Box::new(alone.clone()),
    };
    assert_eq!(batch.to_string(), "Task `a` of the batch: it waits");
    assert_eq!((batch.code(), batch.kind()), (alone.code(), alone.kind()));
    assert_eq!(batch.japanese(), alone.japanese());
    assert_eq!(batch.hint(Language::English), Some("finish the dependencies first"));
}

#[test]
fn the_detail_names_what_the_text_for_agents_leaves_out() {
    let project: ProjectId = "prj_shop".parse().unwrap();
    let refusal = Refusal::ProjectNotFound { project };
    assert_eq!(refusal.to_string(), "Project not found");
    assert_eq!(refusal.detail(), "no project `prj_shop`");
    assert_eq!(Refusal::Inactive.detail(), Refusal::Inactive.to_string());
}

#[test]
fn a_deleted_id_is_refused_with_the_article_of_its_kind() {
    let refused = |kind| Refusal::DeletedId { kind, id: "x".to_owned() }.to_string();
    let why = "`x` was deleted, and an id is never given again";
    assert_eq!(refused(RemovableKind::Task), format!("A task {why}"));
    assert_eq!(refused(RemovableKind::Agent), format!("An agent {why}"));
    assert_eq!(refused(RemovableKind::Project), format!("A project {why}"));
}

#[test]
fn a_deletion_is_final_whether_or_not_there_was_one() {
    let refusal = Refusal::DeletionIsFinal { kind: RemovableKind::Task, id: "x".to_owned() };
    let text = "A deletion is final: if the task x was deleted, it can't be brought back";
    assert_eq!(refusal.to_string(), text);
    assert_eq!(refusal.japanese(), Some(whole("削除したものは元に戻せません: x")));
}
