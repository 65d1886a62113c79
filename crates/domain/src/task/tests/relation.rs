use super::*;

/// Returns a task after it got this relation to another one.
fn related(task: &Task, relation: Relation, other: &TaskId) -> Task {
    match relation {
        Relation::Parent => Task { parent: Some(other.clone()), ..task.clone() },
        Relation::Dependency => {
            let dependencies = [&task.dependencies[..], std::slice::from_ref(other)].concat();
            Task { dependencies: each_once(&dependencies), ..task.clone() }
        }
    }
}

fn is_refused(tasks: &TaskGraph, wished: &Task) -> bool {
    let mut after = tasks.clone();
    after.insert(wished.clone());
    check_shape(wished, &after).is_err()
}

fn relation(is_parent: bool) -> Relation {
    if is_parent { Relation::Parent } else { Relation::Dependency }
}

proptest! {
    #[test]
    fn a_relation_is_impossible_exactly_if_the_change_is_refused(
        wishes in vec((0..N_TASKS, any::<bool>(), 0..N_TASKS), 0..20),
    ) {
        let all = (0..N_TASKS).map(|n| task(nth(n).as_str(), TaskStatus::Todo));
        let mut tasks: TaskGraph = all.collect();
        for (n, is_parent, other) in wishes {
            let wished = related(tasks.find(&nth(n)).unwrap(), relation(is_parent), &nth(other));
            let mut after = tasks.clone();
            after.insert(wished);
            // A dependency can become a part. Any other edit of the relations is refused then.
            if after.tasks().all(|task| check_shape(task, &after).is_ok()) {
                tasks = after;
            }
        }
        let links = |task: &Task| TaskLinks {
            id: task.id.clone(),
            parent: task.parent.clone(),
            dependencies: task.dependencies.clone(),
        };
        let links: Vec<TaskLinks> = tasks.tasks().map(links).collect();
        for relation in [Relation::Parent, Relation::Dependency] {
            for task in tasks.tasks() {
                let impossible = relation.impossible_for(&task.id, &links);
                for other in tasks.tasks() {
                    let wished = related(task, relation, &other.id);
                    let is_refused = is_refused(&tasks, &wished);
                    prop_assert_eq!(
                        impossible.contains(&other.id), is_refused,
                        "{:?} of {}: {}", relation, task.id, other.id
                    );
                }
            }
        }
    }
}
