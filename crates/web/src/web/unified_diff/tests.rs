use proptest::prelude::*;

use super::RowKind::{Add, Context, Delete, Hunk as Place, NoNewline};
use super::*;

fn one(text: &str) -> FileDiff {
    let mut diff = UnifiedDiff::parse(text);
    assert_eq!((diff.files.len(), diff.is_cut), (1, false), "{diff:#?}");
    diff.files.remove(0)
}

fn shown(file: &FileDiff) -> Vec<(RowKind, Option<u32>, Option<u32>, &str)> {
    file.rows.iter().map(|row| (row.kind, row.old, row.new, row.text.as_str())).collect()
}

#[test]
fn the_lines_of_a_changed_file_have_their_numbers_on_both_sides() {
    let file = one("diff --git a/src/a.rs b/src/a.rs
index 1111111..2222222 100644
--- a/src/a.rs
+++ b/src/a.rs
@@ -3,3 +3,4 @@ fn main() {
 three
-four
+FOUR
+and a half
 five
@@ -20 +21 @@
-- old
+- new
");
    assert_eq!((file.path.as_str(), file.kind), ("src/a.rs", ChangeKind::Modified));
    assert_eq!((file.n_additions, file.n_deletions), (3, 2));
    assert_eq!(
        shown(&file),
        [
            (Place, None, None, "@@ -3,3 +3,4 @@ fn main() {"),
            (Context, Some(3), Some(3), "three"),
            (Delete, Some(4), None, "four"),
            (Add, None, Some(4), "FOUR"),
            (Add, None, Some(5), "and a half"),
            (Context, Some(5), Some(6), "five"),
            (Place, None, None, "@@ -20 +21 @@"),
            (Delete, Some(20), None, "- old"),
            (Add, None, Some(21), "- new"),
        ]
    );
}

#[test]
fn a_line_that_looks_like_a_header_is_content_inside_a_hunk() {
    let file = one("diff --git a/x b/x
--- a/x
+++ b/x
@@ -1,2 +1,2 @@
--- a/y
-diff --git a/y b/y
+++ b/y
+@@ -1 +1 @@
");
    assert_eq!(file.path, "x");
    assert_eq!((file.n_additions, file.n_deletions, file.rows.len()), (2, 2, 5));
    assert_eq!(file.rows[1].text, "-- a/y");
}

#[test]
fn new_deleted_and_renamed_files_are_told_apart() {
    let diff = UnifiedDiff::parse(
        "diff --git a/new b/new
new file mode 100644
index 0000000..2222222
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+one
diff --git a/empty file b/empty file
new file mode 100755
index 0000000..e69de29
diff --git a/old b/old
deleted file mode 100644
index 2222222..0000000
--- a/old
+++ /dev/null
@@ -1 +0,0 @@
-one
diff --git a/from here b/to there/and on
similarity index 100%
rename from from here
rename to to there/and on
diff --git a/first b/second
similarity index 90%
copy from first
copy to second
",
    );
    let of = |n: usize| {
        let file = &diff.files[n];
        (file.path.as_str(), file.kind, file.old_path.as_deref())
    };
    assert_eq!(of(0), ("new", ChangeKind::New, None));
    assert_eq!(of(1), ("empty file", ChangeKind::New, None));
    assert_eq!(of(2), ("old", ChangeKind::Deleted, None));
    assert_eq!(of(3), ("to there/and on", ChangeKind::Renamed, Some("from here")));
    assert_eq!(of(4), ("second", ChangeKind::Copied, Some("first")));
    assert_eq!(diff.files.len(), 5);
    assert_eq!((diff.files[0].n_additions, diff.files[2].n_deletions), (1, 1));
}

#[test]
fn a_binary_file_and_a_change_of_the_mode_have_no_lines() {
    let file = one("diff --git a/logo.png b/logo.png
new file mode 100644
index 0000000..2222222
Binary files /dev/null and b/logo.png differ
");
    assert_eq!((file.path.as_str(), file.is_binary, file.rows.len()), ("logo.png", true, 0));
    let file = one("diff --git a/run b/run
old mode 100644
new mode 100755
");
    assert_eq!(file.modes, Some(("100644".to_owned(), "100755".to_owned())));
    assert_eq!((file.path.as_str(), file.is_binary, file.rows.len()), ("run", false, 0));
}

#[test]
fn a_missing_newline_at_the_end_is_shown_on_its_side() {
    let file = one("diff --git a/x b/x
--- a/x
+++ b/x
@@ -1 +1 @@
-one
\\ No newline at end of file
+one
\\ No newline at end of file
");
    let kinds: Vec<_> = file.rows.iter().map(|row| row.kind).collect();
    assert_eq!(kinds, [Place, Delete, NoNewline, Add, NoNewline]);
}

#[test]
fn names_in_quotes_are_read() {
    let file = one(r#"diff --git "a/\346\227\245 \"x\"\t.txt" "b/\346\227\245 \"x\"\t.txt"
old mode 100644
new mode 100755
"#);
    assert_eq!(file.path, "日 \"x\"\t.txt");
    let file = one("diff --git a/with space b/with space
--- a/with space\t
+++ b/with space\t
@@ -1 +1 @@
-a
+b
");
    assert_eq!(file.path, "with space");
    let file = one(r#"diff --git a/plain "b/\303\244"
similarity index 100%
rename from plain
rename to "\303\244"
"#);
    assert_eq!((file.path.as_str(), file.old_path.as_deref()), ("ä", Some("plain")));
}

#[test]
fn a_diff_that_was_cut_ends_where_it_was_cut() {
    let diff = UnifiedDiff::parse(
        "diff --git a/x b/x
--- a/x
+++ b/x
@@ -1,3 +1,3 @@
 one
+… two
+thr
… the diff is longer than 5242880 bytes; see the rest with git
",
    );
    assert!(diff.is_cut);
    let texts: Vec<_> = diff.files[0].rows.iter().map(|row| row.text.as_str()).collect();
    assert_eq!(texts, ["@@ -1,3 +1,3 @@", "one", "… two", "thr"]);
}

#[test]
fn an_empty_diff_has_no_files() {
    assert_eq!(UnifiedDiff::parse(""), UnifiedDiff::default());
}

proptest! {
    #[test]
    fn any_text_is_read(text in r#"((diff --git |"|a/|b/|@@ -|\\|[0-9,]{0,12}| \+|\+|-|--- |\n|…|ä){0,60})"#) {
        let diff = UnifiedDiff::parse(&text);
        for file in &diff.files {
            prop_assert!(file.rows.len() <= text.len());
        }
    }
}

#[test]
fn two_files_of_one_path_have_keys_of_their_own() {
    let diff = UnifiedDiff::parse(
        "diff --git a/link b/link
deleted file mode 100644
--- a/link
+++ /dev/null
@@ -1 +0,0 @@
-text
diff --git a/link b/link
new file mode 120000
--- /dev/null
+++ b/link
@@ -0,0 +1 @@
+target
\\ No newline at end of file
",
    );
    let keys: Vec<_> = diff.files.iter().map(FileDiff::key).collect();
    assert_eq!(keys, ["link", "link~1"]);
    let query = diff.files[1].first_lines("committed").query();
    assert!(query.contains(r#""nth":1"#), "{query}");
}
