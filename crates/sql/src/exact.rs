//! Arithmetic of integers that fails where it would wrap: DataFusion's own answers what is left of
//! a result that has no room, and nobody sees that it is wrong.

use std::sync::Arc;

use datafusion::arrow::compute::kernels::numeric::{add, mul, sub};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;
use datafusion::scalar::ScalarValue;

/// Has `+`, `-` and `*` of integers fail. Behind the rule that brings both sides to one type.
#[derive(Debug)]
pub struct ExactIntegers;

impl AnalyzerRule for ExactIntegers {
    fn name(&self) -> &'static str {
        "exact_integers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite)?.data)
    }
}

fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let (schema, names) = (merge_schema(&plan.inputs()), NamePreserver::new(&plan));
    let rewritten = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let exact = expr.transform_up(|expr| Ok(exact(expr, &schema)))?;
        Ok(exact.update_data(|expr| name.restore(expr)))
    })?;
    match rewritten.transformed {
        true => rewritten.map_data(LogicalPlan::recompute_schema),
        false => Ok(rewritten),
    }
}

fn exact(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    // What has no type, as a parameter of a function that is an argument, is left as it is.
    let type_of = |expr: &Expr| expr.get_type(schema).ok().filter(DataType::is_integer);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply)
                && type_of(&left).is_some_and(|one| type_of(&right) == Some(one)) =>
        {
            Transformed::yes(call(op, *left, *right))
        }
        Expr::Negative(value) => match type_of(&value).map(|of| ScalarValue::new_zero(&of)) {
            Some(Ok(zero)) => Transformed::yes(call(Operator::Minus, lit(zero), *value)),
            _ => Transformed::no(Expr::Negative(value)),
        },
        expr => Transformed::no(expr),
    }
}

fn call(op: Operator, left: Expr, right: Expr) -> Expr {
    let function = Arc::new(ScalarUDF::from(Exact::new(op)));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![left, right]))
}

/// An operator as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Exact {
    op: Operator,
    signature: Signature,
}

impl Exact {
    fn new(op: Operator) -> Exact {
        Exact { op, signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Exact {
    fn name(&self) -> &'static str {
        match self.op {
            Operator::Plus => "+",
            Operator::Minus => "-",
            _ => "*",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [one, other] if one == other => Ok(one.clone()),
            _ => internal_err!("both sides have one type"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = &args.args[..] else { return internal_err!("there are two sides") };
        match self.op {
            Operator::Plus => apply(left, right, add),
            Operator::Minus => apply(left, right, sub),
            _ => apply(left, right, mul),
        }
    }
}
