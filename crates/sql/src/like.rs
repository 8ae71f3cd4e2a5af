//! `LIKE ... ESCAPE`: the pattern is written with the one escape character that is computed with,
//! the backslash.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Like;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

#[derive(Debug)]
pub struct LikeEscape;

impl AnalyzerRule for LikeEscape {
    fn name(&self) -> &'static str {
        "like_escape"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = expr.transform_up(|expr| Ok(with_backslash(expr)))?;
                Ok(expr.update_data(|expr| name.restore(expr)))
            })
        });
        Ok(rewritten?.data)
    }
}

/// A pattern that is computed stays as it is, and is refused where it would run.
fn with_backslash(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Like(Like {
            negated,
            expr,
            pattern,
            escape_char: Some(escape),
            case_insensitive,
        }) if escape != '\\' => match rewritten(&pattern, escape) {
            Some(pattern) => {
                let pattern = Box::new(pattern);
                let like = Like { negated, expr, pattern, escape_char: None, case_insensitive };
                Transformed::yes(Expr::Like(like))
            }
            None => Transformed::no(Expr::Like(Like {
                negated,
                expr,
                pattern,
                escape_char: Some(escape),
                case_insensitive,
            })),
        },
        expr => Transformed::no(expr),
    }
}

fn rewritten(pattern: &Expr, escape: char) -> Option<Expr> {
    Some(match pattern {
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => {
            Expr::Literal(ScalarValue::Utf8(Some(of(text, escape))), metadata.clone())
        }
        Expr::Literal(ScalarValue::LargeUtf8(Some(text)), metadata) => {
            Expr::Literal(ScalarValue::LargeUtf8(Some(of(text, escape))), metadata.clone())
        }
        Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata) => {
            Expr::Literal(ScalarValue::Utf8View(Some(of(text, escape))), metadata.clone())
        }
        Expr::Cast(Cast { expr, field }) => {
            let expr = Box::new(rewritten(expr, escape)?);
            Expr::Cast(Cast { expr, field: field.clone() })
        }
        _ => return None,
    })
}

fn of(text: &str, escape: char) -> String {
    let (mut pattern, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        // An escape at the end escapes itself.
        let (c, is_plain) =
            if c == escape { (chars.next().unwrap_or(c), true) } else { (c, false) };
        if c == '\\' || (is_plain && matches!(c, '%' | '_')) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
