//! Texts of SQL: cut into statements, brought into the planner's order, and looked at before they
//! may run.

use std::collections::VecDeque;

use datafusion::common::plan_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement as PlanStatement};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::unsupported;

/// Settings that change how a query runs, but neither where files are nor how much it may take.
const SETTINGS: [&str; 3] =
    ["datafusion.execution.time_zone", "datafusion.optimizer.", "datafusion.explain."];

/// A chain of so many makes a tree as deep, which the stack has room for; a long list is IN.
const OPERATORS_MAX: usize = 4096;

pub fn parse(text: &str) -> Result<VecDeque<Statement>> {
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|error| DataFusionError::Plan(error.to_string()))?;
    let operators = operators(&tokens);
    if operators > OPERATORS_MAX {
        return plan_err!("a text has no more than {OPERATORS_MAX} operators: {operators}");
    }
    let tokens = columns_first(number_parameters(tokens));
    DFParserBuilder::new(tokens).with_dialect(&dialect).build()?.parse_statements()
}

/// `?` is the next parameter, which the planner knows by its number.
fn number_parameters(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut count = 0;
    for token in &mut tokens {
        match &mut token.token {
            Token::Placeholder(name) if name == "?" => {
                count += 1;
                *name = format!("${count}");
            }
            Token::SemiColon => count = 0,
            _ => {}
        }
    }
    tokens
}

/// `CREATE EXTERNAL TABLE t STORED AS KVASIR LOCATION 'p' (columns)`: the parser wants the columns
/// behind the name.
fn columns_first(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut ordered: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // Where the first word behind a table's name stands.
    let mut clauses_at = None;
    let mut last = None;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if is_word(&token.token, "external") {
            clauses_at = Some(None);
        } else if token.token == Token::SemiColon {
            clauses_at = None;
        } else if is_word(&token.token, "stored") || is_word(&token.token, "location") {
            if let Some(at @ None) = &mut clauses_at {
                *at = Some(ordered.len());
            }
        } else if let (Token::LParen, Some(Token::SingleQuotedString(_)), Some(Some(at))) =
            (&token.token, &last, clauses_at)
        {
            let (mut columns, mut depth) = (vec![token], 1);
            while depth > 0
                && let Some(token) = tokens.next()
            {
                match token.token {
                    Token::LParen => depth += 1,
                    Token::RParen => depth -= 1,
                    _ => {}
                }
                columns.push(token);
            }
            ordered.splice(at..at, columns);
            continue;
        }
        if !matches!(token.token, Token::Whitespace(_)) {
            last = Some(token.token.clone());
        }
        ordered.push(token);
    }
    ordered
}

/// How many tokens make one expression of two. Commas and brackets do not: long lists are no tree;
/// nor does a minus that is a value's sign.
fn operators(tokens: &[TokenWithSpan]) -> usize {
    let joins = ["and", "or", "union", "join", "case", "between", "like", "not"];
    let mut last = &Token::Comma;
    let mut count = 0;
    for TokenWithSpan { token, .. } in tokens {
        count += usize::from(match token {
            Token::Whitespace(_) => continue,
            Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => false,
            Token::Comma | Token::LParen | Token::RParen | Token::SemiColon => false,
            Token::Period => false,
            Token::Minus => !matches!(last, Token::Comma | Token::LParen),
            Token::Word(_) => joins.iter().any(|word| is_word(token, word)),
            _ => true,
        });
        last = token;
    }
    count
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.value.eq_ignore_ascii_case(word))
}

/// COPY is refused before it is planned, as the planner looks for its format first; and so is what
/// the planner would leave out.
pub fn check_text(statement: &Statement, allows_files: bool) -> Result<()> {
    match statement {
        Statement::CopyTo(_) if !allows_files => {
            plan_err!("COPY writes files, and that is only done with --allow-files")
        }
        Statement::Explain(explain) => check_text(&explain.statement, allows_files),
        Statement::Statement(statement) => unsupported::check(statement),
        _ => Ok(()),
    }
}

/// Fails with a reason if a plan is one that is not to run, even as a part of another.
pub fn check(plan: &LogicalPlan, allows_files: bool) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        check_node(node, allows_files)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn check_node(node: &LogicalPlan, allows_files: bool) -> Result<()> {
    match node {
        LogicalPlan::Copy(_) if !allows_files => {
            plan_err!("COPY writes files, and that is only done with --allow-files")
        }
        LogicalPlan::Ddl(DdlStatement::CreateExternalTable(table))
            if !table.file_type.eq_ignore_ascii_case("kvasir") && !allows_files =>
        {
            plan_err!(
                "STORED AS {} reads files, and that is only done with --allow-files; tables of \
                 keys are STORED AS KVASIR",
                table.file_type
            )
        }
        LogicalPlan::Ddl(
            DdlStatement::CreateExternalTable(_)
            | DdlStatement::CreateMemoryTable(_)
            | DdlStatement::CreateView(_)
            | DdlStatement::DropTable(_)
            | DdlStatement::DropView(_),
        ) => Ok(()),
        LogicalPlan::Ddl(ddl) => plan_err!("{} is not supported", ddl.name()),
        LogicalPlan::Statement(PlanStatement::SetVariable(set)) => check_setting(&set.variable),
        LogicalPlan::Statement(PlanStatement::ResetVariable(reset)) => {
            check_setting(&reset.variable)
        }
        _ => Ok(()),
    }
}

fn check_setting(name: &str) -> Result<()> {
    let name = name.to_lowercase();
    if name == "timezone" || SETTINGS.iter().any(|known| name.starts_with(known)) {
        return Ok(());
    }
    plan_err!("{name} is not set by a statement")
}
