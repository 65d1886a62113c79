//! The statements use only the SQL that SQLite and PostgreSQL have in common, with the same
//! meaning.

use std::collections::BTreeMap;

use domain::launch::Outcome;
use domain::spend::{Day, Register};
use domain::{Launch, LaunchId, LaunchState, Usage};
use futures::FutureExt as _;
use store::rows::{Context, launch_spend};
use store::{StoreError, open};

use super::rows::{at, launch};
use super::statements::{self, Statement};

/// The words that statements may use. Both engines know them, and both mean the same.
const WORDS: &[&str] = &[
    "ALL", "AND", "AS", "BY", "CASE", "COALESCE", "CONFLICT", "COUNT", "CROSS", "DELETE", "DESC",
    "DISTINCT", "DO", "ELSE", "END", "EXISTS", "FALSE", "FIRST", "FROM", "GROUP", "IN", "INSERT",
    "INTO", "IS", "JOIN", "LAST", "LEFT", "LIMIT", "MAX", "MIN", "NOT", "NOTHING", "NULL", "NULLS",
    "OFFSET", "ON", "OR", "ORDER", "SELECT", "SET", "THEN", "TRUE", "UNION", "UPDATE", "VALUES",
    "WHEN", "WHERE",
];

/// Columns of subqueries that are never NULL, although the schema does not know them.
const NEVER_NULL: &[&str] = &["waiting_since"];

/// A column of the schema.
#[derive(Debug)]
struct Column {
    kind: String,
    is_nullable: bool,
    is_key: bool,
}

/// The columns by table and name.
type Schema = BTreeMap<(String, String), Column>;

fn schema() -> Schema {
    let sql = "SELECT m.name, c.name, c.type, c.\"notnull\", c.pk \
        FROM sqlite_master AS m, pragma_table_info(m.name) AS c \
        WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND m.name <> '_sqlx_migrations'";
    let read = open::memory().unwrap().read(move |tx| {
        tx.rows("column", sql, &[], |cells| {
            let key = (cells.get()?, cells.get()?);
            let kind: String = cells.get()?;
            let is_number = kind == "INTEGER";
            let is_nullable = !cells.get::<bool>()? && !is_number;
            let column = Column { kind, is_nullable, is_key: cells.get()? };
            Ok((key, column))
        })
    });
    let columns: Result<Vec<_>, StoreError> = read.now_or_never().unwrap();
    columns.unwrap().into_iter().collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// A text between single quotation marks.
    Text,
    Number(String),
    Parameter(usize),
    Symbol(char),
}

impl Token {
    fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found == word)
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Word(word) if word.starts_with(|c: char| c.is_ascii_lowercase()) => Some(word),
            _ => None,
        }
    }
}

fn tokens(sql: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = sql.chars().peekable();
    let is_of_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    while let Some(c) = rest.next() {
        let mut take = |first: Option<char>| {
            let mut text: String = first.into_iter().collect();
            while let Some(c) = rest.next_if(is_of_word) {
                text.push(c);
            }
            text
        };
        match c {
            c if c.is_whitespace() => {}
            c if c.is_ascii_alphabetic() || c == '_' => found.push(Token::Word(take(Some(c)))),
            c if c.is_ascii_digit() => found.push(Token::Number(take(Some(c)))),
            '?' => match take(None).parse() {
                Ok(n) => found.push(Token::Parameter(n)),
                Err(_) => return Err("`?` without a number".to_owned()),
            },
            '\'' => {
                let text: String = std::iter::from_fn(|| rest.next_if(|c| *c != '\'')).collect();
                rest.next();
                if text.contains('?') {
                    return Err("a `?` in a text".to_owned());
                }
                found.push(Token::Text);
            }
            '=' | '<' | '>' | '+' | '*' | '(' | ')' | ',' | '.' => found.push(Token::Symbol(c)),
            c => return Err(format!("the symbol `{c}`")),
        }
    }
    Ok(found)
}

/// Returns the mistake in a statement.
fn fault(statement: &Statement, schema: &Schema) -> Option<String> {
    let tokens = match tokens(&statement.sql) {
        Ok(tokens) => tokens,
        Err(fault) => return Some(fault),
    };
    let parsed = Parsed { tokens: &tokens, schema };
    None.or_else(|| parsed.foreign_word())
        .or_else(|| parsed.foreign_form())
        .or_else(|| parsed.bare_column())
        .or_else(|| parsed.undefined_order())
        .or_else(|| parsed.wrong_type(&statement.args))
}

struct Parsed<'a> {
    tokens: &'a [Token],
    schema: &'a Schema,
}

impl Parsed<'_> {
    fn at(&self, n: usize) -> Option<&Token> {
        self.tokens.get(n)
    }

    fn is(&self, n: usize, word: &str) -> bool {
        self.at(n).is_some_and(|token| token.is(word))
    }

    fn is_symbol(&self, n: usize, symbol: char) -> bool {
        self.at(n) == Some(&Token::Symbol(symbol))
    }

    /// Returns the tokens from `from` on up to the end of their parentheses, or to one of these
    /// words between them.
    fn until(&self, from: usize, words: &[&str]) -> std::ops::Range<usize> {
        let mut depth = 0;
        for (n, token) in self.tokens.iter().enumerate().skip(from) {
            match token {
                Token::Symbol('(') => depth += 1,
                Token::Symbol(')') if depth == 0 => return from..n,
                Token::Symbol(')') => depth -= 1,
                token if depth == 0 && words.iter().any(|word| token.is(word)) => return from..n,
                _ => {}
            }
        }
        from..self.tokens.len()
    }

    /// Returns the parts of a range between the commas that are in no parentheses of it.
    fn parts(&self, range: std::ops::Range<usize>) -> Vec<std::ops::Range<usize>> {
        let (mut parts, mut depth, mut from) = (Vec::new(), 0, range.start);
        for n in range.clone() {
            match &self.tokens[n] {
                Token::Symbol('(') => depth += 1,
                Token::Symbol(')') => depth -= 1,
                Token::Symbol(',') if depth == 0 => {
                    parts.push(from..n);
                    from = n + 1;
                }
                _ => {}
            }
        }
        parts.push(from..range.end);
        parts
    }

    fn places(&self, word: &'static str) -> impl Iterator<Item = usize> {
        (0..self.tokens.len()).filter(move |n| self.is(*n, word))
    }

    fn foreign_word(&self) -> Option<String> {
        self.tokens.iter().enumerate().find_map(|(n, token)| {
            let Token::Word(word) = token else { return None };
            if word.starts_with(|c: char| c.is_ascii_lowercase()) {
                // Only a table with its columns is a name before parentheses.
                let is_call = self.is_symbol(n + 1, '(') && !self.is(n.wrapping_sub(1), "INTO");
                let is_name = !word.contains(|c: char| c.is_ascii_uppercase()) && !is_call;
                return (!is_name).then(|| format!("the name `{word}`"));
            }
            (!WORDS.contains(&word.as_str())).then(|| format!("the word `{word}`"))
        })
    }

    fn foreign_form(&self) -> Option<String> {
        for (n, token) in self.tokens.iter().enumerate() {
            let before = n.checked_sub(1).and_then(|n| self.at(n));
            let fault = match token {
                Token::Word(word) if ["MIN", "MAX"].contains(&word.as_str()) => {
                    let n_args = self.parts(self.until(n + 2, &[])).len();
                    (n_args > 1).then(|| format!("{word} of several values"))
                }
                Token::Word(word) if word == "IS" => {
                    let is_null =
                        self.is(n + 1, "NULL") || self.is(n + 1, "NOT") && self.is(n + 2, "NULL");
                    let is_typed = !matches!(before, Some(Token::Parameter(_)));
                    (!is_null || !is_typed).then(|| "IS of something that is not NULL".to_owned())
                }
                Token::Symbol('+') => {
                    // `$1 + 1` has four bytes.
                    let is_parameter =
                        |token: Option<&Token>| matches!(token, Some(Token::Parameter(_)));
                    (is_parameter(before) || is_parameter(self.at(n + 1)))
                        .then(|| "a parameter whose type is that of a number".to_owned())
                }
                Token::Symbol('.') => before
                    .is_none_or(|token| token.name().is_none())
                    .then(|| "a number with a fraction".to_owned()),
                _ => None,
            };
            if fault.is_some() {
                return fault;
            }
        }
        let changes_rows = self.is(0, "DELETE") || self.is(0, "UPDATE");
        let end = self.until(0, &["LIMIT", "ORDER"]).end;
        if changes_rows && end < self.tokens.len() {
            return Some("a limit or an order of changes".to_owned());
        }
        // `n = n + 1` does not say which of the two rows it means.
        let conflict = (0..self.tokens.len())
            .find(|n| self.is(*n, "DO") && self.is(n + 1, "UPDATE") && self.is(n + 2, "SET"))?;
        self.parts(self.until(conflict + 3, &["WHERE"]))
            .into_iter()
            .any(|part| !self.is(part.start + 2, "excluded"))
            .then(|| "an upsert that takes its value from elsewhere than `excluded`".to_owned())
    }

    /// Returns the name of the column at the beginning of a range, without that of its table.
    fn column(&self, range: std::ops::Range<usize>) -> Option<&str> {
        let n = if self.is_symbol(range.start + 1, '.') { range.start + 2 } else { range.start };
        self.at(n)?.name()
    }

    /// Finds a column in the answer of a grouped query that may differ within a group.
    fn bare_column(&self) -> Option<String> {
        for group in self.places("GROUP") {
            let groups = self.until(group + 2, &["HAVING", "ORDER", "LIMIT", "UNION"]);
            let groups: Vec<_> =
                self.parts(groups).into_iter().filter_map(|part| self.column(part)).collect();
            let select = self
                .places("SELECT")
                .filter(|n| self.until(n + 1, &["GROUP"]).end == group)
                .last()?;
            for part in self.parts(self.until(select + 1, &["FROM"])) {
                let is_sum = ["COUNT", "MIN", "MAX"].iter().any(|word| self.is(part.start, word));
                let column = self.column(part);
                if let Some(column) = column.filter(|column| !is_sum && !groups.contains(column)) {
                    return Some(format!("`{column}`, which is not in GROUP BY"));
                }
            }
        }
        None
    }

    /// Finds an order by a nullable column without a place for NULL.
    fn undefined_order(&self) -> Option<String> {
        for order in self.places("ORDER") {
            for part in self.parts(self.until(order + 2, &["LIMIT", "UNION"])) {
                let Some(column) = self.column(part.clone()) else {
                    return Some("an order by something that is not a column".to_owned());
                };
                let is_said = part.clone().any(|n| self.is(n, "NULLS"));
                let has_none = (0..self.tokens.len()).any(|n| {
                    let is_not_null =
                        self.is(n + 1, "IS") && self.is(n + 2, "NOT") && self.is(n + 3, "NULL");
                    let is_compared = self.is_symbol(n + 1, '<') || self.is_symbol(n + 1, '>');
                    self.is(n, column) && (is_not_null || is_compared)
                });
                let known: Vec<_> = self.columns(column).collect();
                let is_nullable = known.is_empty() && !NEVER_NULL.contains(&column)
                    || known.iter().any(|column| column.is_nullable);
                if is_nullable && !is_said && !has_none {
                    return Some(format!("an order by `{column}`, which can be NULL"));
                }
            }
        }
        None
    }

    /// Returns the columns with this name in the tables that the statement names.
    fn columns(&self, name: &str) -> impl Iterator<Item = &Column> {
        let columns = self.schema.iter().filter(move |((_, column), _)| column == name);
        columns
            .filter(|((table, _), _)| self.tokens.iter().any(|token| token.is(table)))
            .map(|(_, column)| column)
    }

    /// Finds a parameter whose type differs from that of its column.
    fn wrong_type(&self, args: &[&'static str]) -> Option<String> {
        let mut meetings = Vec::new();
        for (n, token) in self.tokens.iter().enumerate() {
            let Token::Parameter(parameter) = token else { continue };
            let first = (1..n)
                .rev()
                .find(|n| !matches!(self.tokens[*n], Token::Symbol('=' | '<' | '>')))
                .unwrap_or(n);
            if let (Some(column), true) = (self.tokens[first].name(), first + 1 < n) {
                meetings.push((column.to_owned(), *parameter));
            }
        }
        if self.is(0, "INSERT") {
            let columns = self.parts(self.until(4, &[]));
            let values = self.places("VALUES").next()?;
            for (column, value) in columns.into_iter().zip(self.parts(self.until(values + 2, &[])))
            {
                if let Some(Token::Parameter(parameter)) = self.at(value.start) {
                    meetings.push((self.column(column)?.to_owned(), *parameter));
                }
            }
        }
        meetings.into_iter().find_map(|(column, parameter)| {
            let kind = args.get(parameter - 1)?;
            let is_wrong = self.columns(&column).any(|known| {
                let expected = if known.kind == "INTEGER" { "BIGINT" } else { &known.kind };
                *kind != expected && *kind != "NULL"
            });
            is_wrong.then(|| format!("a {kind} for the column `{column}`"))
        })
    }
}

#[test]
fn each_statement_means_the_same_to_sqlite_and_postgresql() {
    let (schema, all) = (schema(), statements::all());
    let faults: BTreeMap<_, _> = all
        .iter()
        .filter_map(|statement| Some(((statement.of, &statement.sql), fault(statement, &schema)?)))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn what_only_one_engine_understands_is_found() {
    let schema = schema();
    for (sql, expected) in [
        ("SELECT id FROM tasks WHERE id = ?1", None),
        ("SELECT id FROM tasks WHERE id = ?", Some("without a number")),
        ("SELECT id FROM tasks WHERE title = 'why?'", Some("in a text")),
        ("SELECT \"id\" FROM tasks", Some("symbol `\"`")),
        ("SELECT id FROM tasks LIMIT -1", Some("symbol `-`")),
        ("SELECT created_at / 2 FROM tasks", Some("symbol `/`")),
        ("SELECT id || title FROM tasks", Some("symbol `|`")),
        ("SELECT Id FROM tasks", Some("word `Id`")),
        ("SELECT createdAt FROM tasks", Some("name `createdAt`")),
        ("SELECT ifnull(id, 1) FROM tasks", Some("name `ifnull`")),
        ("SELECT IFNULL(id, 1) FROM tasks", Some("word `IFNULL`")),
        ("SELECT TOTAL(created_at) FROM tasks", Some("word `TOTAL`")),
        ("SELECT SUM(created_at) FROM tasks", Some("word `SUM`")),
        ("SELECT id FROM tasks WHERE id LIKE ?1", Some("word `LIKE`")),
        ("SELECT id FROM tasks FOR UPDATE", Some("word `FOR`")),
        // The clock of the database's server may be wrong.
        ("SELECT id FROM tasks WHERE created_at < now()", Some("name `now`")),
        ("UPDATE tasks SET created_at = CURRENT_TIMESTAMP", Some("word `CURRENT_TIMESTAMP`")),
        ("INSERT OR IGNORE INTO pauses (since) VALUES (?1)", Some("word `IGNORE`")),
        ("INSERT INTO pauses (since) VALUES (?1) RETURNING since", Some("word `RETURNING`")),
        ("SELECT MAX(0, created_at) FROM tasks", Some("MAX of several")),
        ("SELECT MAX(created_at) FROM tasks", None),
        ("SELECT id FROM messages WHERE is_visible IS TRUE", Some("IS of")),
        ("SELECT id FROM tasks WHERE ?1 IS NULL", Some("IS of")),
        ("SELECT id FROM tasks WHERE created_at > 1.5", Some("fraction")),
        ("UPDATE tasks SET revision = ?1 + 1 WHERE id = ?2", Some("type is that of a number")),
        ("UPDATE tasks SET revision = revision + 1 WHERE id = ?1", None),
        ("DELETE FROM events WHERE seq > 1 LIMIT 5", Some("limit or an order")),
        ("DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY seq LIMIT 5)", None),
        (
            "INSERT INTO pauses (since) VALUES (1) ON CONFLICT (since) DO UPDATE SET since = since + 1",
            Some("upsert"),
        ),
        ("SELECT project_id, title FROM tasks GROUP BY project_id", Some("`title`, which")),
        ("SELECT t.project_id, COUNT(*) FROM tasks AS t GROUP BY t.project_id", None),
        ("SELECT id FROM launches ORDER BY ended_at", Some("`ended_at`, which can be NULL")),
        ("SELECT id FROM launches ORDER BY ended_at DESC NULLS LAST, id", None),
        ("SELECT id FROM launches WHERE ended_at IS NOT NULL ORDER BY ended_at, id LIMIT 1", None),
        ("SELECT id FROM launches ORDER BY launches.state, 1", Some("not a column")),
    ] {
        let statement = Statement { of: "none", sql: sql.to_owned(), args: vec!["TEXT", "TEXT"] };
        let found = fault(&statement, &schema);
        match (&found, expected) {
            (None, None) => {}
            (Some(found), Some(expected)) if found.contains(expected) => {}
            _ => panic!("expected {expected:?}, found {found:?}: {sql}"),
        }
    }
}

#[test]
fn a_parameter_of_another_type_than_its_column_is_found() {
    let schema = schema();
    for (sql, args, is_wrong) in [
        ("SELECT id FROM tasks WHERE id = ?1 AND created_at < ?2", ["TEXT", "BIGINT"], false),
        ("SELECT id FROM tasks WHERE id = ?1 AND created_at < ?2", ["TEXT", "TEXT"], true),
        ("SELECT t.id FROM tasks AS t WHERE t.id <> ?1", ["BIGINT", "TEXT"], true),
        ("INSERT INTO assignments (project_id, agent_id) VALUES (?1, ?2)", ["TEXT", "NULL"], false),
        ("INSERT INTO messages (id, is_visible) VALUES (?1, ?2)", ["TEXT", "BIGINT"], true),
        ("INSERT INTO messages (id, is_visible) VALUES (?1, ?2)", ["TEXT", "BOOLEAN"], false),
    ] {
        let statement = Statement { of: "none", sql: sql.to_owned(), args: args.to_vec() };
        assert_eq!(fault(&statement, &schema).is_some(), is_wrong, "{sql} {args:?}");
    }
}

#[test]
fn the_schema_has_keys_without_null_and_types_that_both_engines_know() {
    for ((table, name), column) in schema() {
        assert!(
            ["TEXT", "BIGINT", "BOOLEAN"].contains(&column.kind.as_str())
                || (column.kind.as_str(), name.as_str()) == ("INTEGER", "seq"),
            "{table}.{name} is {}",
            column.kind
        );
        // The migration with this column was released already.
        let is_exempt = (table.as_str(), name.as_str()) == ("output_tails", "launch_id");
        assert!(
            !column.is_key || !column.is_nullable || is_exempt,
            "the key {table}.{name} can be NULL"
        );
    }
}

#[tokio::test]
async fn a_sum_beyond_64_bits_is_the_greatest_number_and_no_error() {
    let engine = open::memory().unwrap();
    let totals: Result<_, StoreError> = engine
        .write_with(Context::new(at(1), "unique".to_owned(), None), |tx| {
            let state = LaunchState::Ended { outcome: Outcome::Completed, at: at(i64::MAX) };
            let most = u64::try_from(i64::MAX).unwrap();
            let usage = Usage { input_tokens: most, turns: 1, ..Usage::default() };
            for name in ["l1", "l2", "l3"] {
                let (state, started_at) = (state.clone(), Some(at(0)));
                tx.put(&Launch { state, started_at, ..launch(name, "a", "p") })?;
                let of: LaunchId = name.parse().unwrap();
                launch_spend::raise(tx, &of, Register { day: Day::from_number(7), usage })?;
            }
            launch_spend::totals(tx)
        })
        .await;
    let totals = totals.unwrap();
    let [(_, total)] = &totals[..] else { panic!("{totals:?}") };
    assert_eq!((total.n_launches, total.n_with_usage), (3, 3));
    assert_eq!((total.usage.input_tokens, total.usage.turns), (u64::MAX, 3));
    assert_eq!(total.run_time.as_millis(), 3 * i64::MAX as u128);
}

/// The parts of the engines that write their SQL themselves.
#[test]
fn no_statement_of_an_engine_asks_the_clock_of_the_database() {
    let mut files: Vec<_> =
        ["crates/store/src", "crates/store/src/postgres", "crates/store/src/migrations"]
            .into_iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .collect();
    files.sort();
    assert!(files.len() > 15, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap().to_lowercase();
        for clock in ["now()", "current_timestamp", "current_date", "clock_timestamp", "localtime"]
        {
            // `Instant::now()` and its kind are of this program. No statement reads when a migration
            // was made.
            let text = text.replace("::now()", "").replace("default current_timestamp", "");
            let found = text.contains(clock);
            assert!(!found, "{} asks for {clock}", file.display());
        }
    }
}
