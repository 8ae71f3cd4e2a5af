//! `sum` of integers that fails where it would wrap: it adds in 128 bits, and what it ends with has
//! to fit. All else is DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature,
};
use datafusion::scalar::ScalarValue;

/// No sum of 64 bits has as many digits.
const WIDE: DataType = DataType::Decimal128(38, 0);

#[derive(Debug, PartialEq, Eq, Hash, Default)]
pub struct ExactSum(Sum);

fn is_narrow(field: &FieldRef) -> bool {
    field.data_type().is_integer()
}

fn wide(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), WIDE, field.is_nullable()))
}

/// The same call, of wide numbers.
fn widened<'a>(args: &AccumulatorArgs<'a>, fields: &'a [FieldRef]) -> AccumulatorArgs<'a> {
    AccumulatorArgs {
        return_field: wide(&args.return_field),
        schema: args.schema,
        ignore_nulls: args.ignore_nulls,
        order_bys: args.order_bys,
        is_reversed: args.is_reversed,
        name: args.name,
        is_distinct: args.is_distinct,
        exprs: args.exprs,
        expr_fields: fields,
    }
}

impl AggregateUDFImpl for ExactSum {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.0.return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if !is_narrow(&args.return_field) {
            return self.0.accumulator(args);
        }
        let fields: Vec<_> = args.expr_fields.iter().map(wide).collect();
        let inner = self.0.accumulator(widened(&args, &fields))?;
        Ok(Box::new(Wide { inner, narrow: args.return_field.data_type().clone() }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let return_field = match is_narrow(&args.return_field) {
            true => wide(&args.return_field),
            false => Arc::clone(&args.return_field),
        };
        self.0.state_fields(StateFieldsArgs { return_field, ..args })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        if !is_narrow(&args.return_field) {
            return self.0.create_groups_accumulator(args);
        }
        let fields: Vec<_> = args.expr_fields.iter().map(wide).collect();
        let inner = self.0.create_groups_accumulator(widened(&args, &fields))?;
        Ok(Box::new(WideGroups { inner, narrow: args.return_field.data_type().clone() }))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        // Of distinct ones there is none of wide numbers.
        if !is_narrow(&args.return_field) || args.is_distinct {
            return self.0.create_sliding_accumulator(args);
        }
        let fields: Vec<_> = args.expr_fields.iter().map(wide).collect();
        let inner = self.0.create_sliding_accumulator(widened(&args, &fields))?;
        Ok(Box::new(Wide { inner, narrow: args.return_field.data_type().clone() }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.set_monotonicity(data_type)
    }
}

fn widen(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    Ok(values.iter().map(|values| cast(values, &WIDE)).collect::<Result<_, _>>()?)
}

/// A sum of wide numbers that ends as one of narrow ones.
#[derive(Debug)]
struct Wide {
    inner: Box<dyn Accumulator>,
    narrow: DataType,
}

impl Accumulator for Wide {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&widen(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.inner.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&narrowed(&sum, &self.narrow)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&widen(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

/// As `Wide`, of many groups.
struct WideGroups {
    inner: Box<dyn GroupsAccumulator>,
    narrow: DataType,
}

impl GroupsAccumulator for WideGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.inner.update_batch(&widen(values)?, groups, filter, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        narrowed(&self.inner.evaluate(emit_to)?, &self.narrow)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.inner.merge_batch(states, groups, count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(&widen(values)?, filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

/// Fails if a sum has no room.
fn narrowed(sums: &ArrayRef, narrow: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(sums, narrow, &options)?)
}
