//! What clients ask of an endpoint before they ask for data: what its SQL can do, its types, which
//! columns tell the rows of a table apart. JDBC's DatabaseMetaData is made of this, and throws
//! where a fact is missing.

use std::sync::Arc;

use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity, XdbcDataType,
    XdbcDatetimeSubcode,
};
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use tonic::Status;

use crate::definition::{ID, INDEX, KEY, Kind, MEMBER};
use crate::session::{CATALOG, SCHEMA};

const YES: &[SqlInfo] = &[
    SqlInfo::FlightSqlServerBulkIngestion,
    SqlInfo::FlightSqlServerSql,
    SqlInfo::SqlAllTablesAreSelectable,
    SqlInfo::SqlBatchUpdatesSupported,
    SqlInfo::SqlCatalogAtStart,
    SqlInfo::SqlCorrelatedSubqueriesSupported,
    SqlInfo::SqlDdlTable,
    SqlInfo::SqlNullPlusNullIsNull,
    SqlInfo::SqlSupportsColumnAliasing,
    SqlInfo::SqlSupportsExpressionsInOrderBy,
    SqlInfo::SqlSupportsLikeEscapeClause,
    SqlInfo::SqlSupportsOrderByUnrelated,
    SqlInfo::SqlSupportsTableCorrelationNames,
];

const NO: &[SqlInfo] = &[
    SqlInfo::FlightSqlServerCancel,
    SqlInfo::FlightSqlServerIngestTransactionsSupported,
    SqlInfo::FlightSqlServerReadOnly,
    SqlInfo::FlightSqlServerSubstrait,
    SqlInfo::SqlDataDefinitionCausesTransactionCommit,
    SqlInfo::SqlDataDefinitionsInTransactionsIgnored,
    SqlInfo::SqlDdlCatalog,
    SqlInfo::SqlDdlSchema,
    SqlInfo::SqlLocatorsUpdateCopy,
    SqlInfo::SqlMaxRowSizeIncludesBlobs,
    SqlInfo::SqlNamedParametersSupported,
    SqlInfo::SqlSavepointsSupported,
    SqlInfo::SqlSelectForUpdateSupported,
    SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported,
    SqlInfo::SqlStoredProceduresSupported,
    SqlInfo::SqlSupportsDifferentTableCorrelationNames,
    SqlInfo::SqlSupportsIntegrityEnhancementFacility,
    SqlInfo::SqlSupportsNonNullableColumns,
    SqlInfo::SqlTransactionsSupported,
];

/// Where zero says that there is no limit, or none that is known; and the level of transactions,
/// that there are none, which JDBC reads as a number of this size.
const UNLIMITED: &[SqlInfo] = &[
    SqlInfo::SqlDbSchemaNameLength,
    SqlInfo::SqlDefaultTransactionIsolation,
    SqlInfo::SqlMaxBinaryLiteralLength,
    SqlInfo::SqlMaxCatalogNameLength,
    SqlInfo::SqlMaxCharLiteralLength,
    SqlInfo::SqlMaxColumnNameLength,
    SqlInfo::SqlMaxColumnsInGroupBy,
    SqlInfo::SqlMaxColumnsInIndex,
    SqlInfo::SqlMaxColumnsInOrderBy,
    SqlInfo::SqlMaxColumnsInSelect,
    SqlInfo::SqlMaxColumnsInTable,
    SqlInfo::SqlMaxConnections,
    SqlInfo::SqlMaxCursorNameLength,
    SqlInfo::SqlMaxIndexLength,
    SqlInfo::SqlMaxProcedureNameLength,
    SqlInfo::SqlMaxRowSize,
    SqlInfo::SqlMaxStatementLength,
    SqlInfo::SqlMaxStatements,
    SqlInfo::SqlMaxTableNameLength,
    SqlInfo::SqlMaxTablesInSelect,
    SqlInfo::SqlMaxUsernameLength,
];

/// Numbers: an ordinal, or a bit for each thing that is done, by the order of their enumeration.
const NUMBERS: &[(SqlInfo, i32)] = &[
    (SqlInfo::FlightSqlServerStatementTimeout, 0),
    (SqlInfo::FlightSqlServerTransaction, 0),
    (SqlInfo::FlightSqlServerTransactionTimeout, 0),
    // Of ANSI 92, the entry level.
    (SqlInfo::SqlAnsi92SupportedLevel, 0b1),
    (SqlInfo::SqlCatalogsSupportedActions, 0),
    // There are no transactions, which is the first of their levels.
    (SqlInfo::SqlSupportedTransactionsIsolationLevels, 0b1),
    (SqlInfo::SqlIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32),
    (
        SqlInfo::SqlQuotedIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32,
    ),
    (SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i32),
    // Limited ones and full ones.
    (SqlInfo::SqlOuterJoinsSupportLevel, 0b110),
    (SqlInfo::SqlSchemasSupportedActions, 0),
    // Rows are read forwards, and not changed on the way.
    (SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly, 0b10),
    (SqlInfo::SqlSupportedConcurrenciesForResultSetScrollInsensitive, 0),
    (SqlInfo::SqlSupportedConcurrenciesForResultSetScrollSensitive, 0),
    (SqlInfo::SqlSupportedConcurrenciesForResultSetUnspecified, 0),
    (SqlInfo::SqlSupportedResultSetTypes, 0b10),
    // Minimum and core.
    (SqlInfo::SqlSupportedGrammar, 0b11),
    // By columns that are not selected, and by more than those.
    (SqlInfo::SqlSupportedGroupBy, 0b11),
    (SqlInfo::SqlSupportedPositionedCommands, 0),
    // In comparisons, EXISTS and IN.
    (SqlInfo::SqlSupportedSubqueries, 0b111),
    // UNION and UNION ALL.
    (SqlInfo::SqlSupportedUnions, 0b11),
];

const TEXTS: &[(SqlInfo, &str)] = &[
    (SqlInfo::FlightSqlServerName, "Kvasir"),
    (SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION")),
    (SqlInfo::FlightSqlServerArrowVersion, "1.3"),
    (SqlInfo::SqlCatalogTerm, "catalog"),
    (SqlInfo::SqlExtraNameCharacters, ""),
    (SqlInfo::SqlIdentifierQuoteChar, "\""),
    (SqlInfo::SqlProcedureTerm, ""),
    (SqlInfo::SqlSchemaTerm, "schema"),
    (SqlInfo::SqlSearchStringEscape, "\\"),
];

/// Those beyond the standard's, and functions under the names that JDBC knows them by.
const LISTS: &[(SqlInfo, &[&str])] = &[
    (SqlInfo::SqlKeywords, &["EXTERNAL", "ILIKE", "LIMIT", "LOCATION", "OFFSET", "QUALIFY"]),
    (
        SqlInfo::SqlNumericFunctions,
        &[
            "ABS", "ACOS", "ASIN", "ATAN", "ATAN2", "CEIL", "COS", "COT", "DEGREES", "EXP",
            "FLOOR", "LOG", "LOG10", "PI", "POWER", "RADIANS", "RANDOM", "ROUND", "SIGNUM", "SIN",
            "SQRT", "TAN", "TRUNC",
        ],
    ),
    (
        SqlInfo::SqlStringFunctions,
        &[
            "ASCII", "CHR", "CONCAT", "LEFT", "LENGTH", "LOWER", "LPAD", "LTRIM", "REPEAT",
            "REPLACE", "RIGHT", "RPAD", "RTRIM", "SUBSTR", "UPPER",
        ],
    ),
    (SqlInfo::SqlSystemFunctions, &["COALESCE", "NULLIF"]),
    (
        SqlInfo::SqlDatetimeFunctions,
        &["CURRENT_DATE", "CURRENT_TIME", "DATE_PART", "DATE_TRUNC", "EXTRACT", "NOW"],
    ),
];

/// What the endpoint and its SQL can do.
pub fn of_sql() -> Result<SqlInfoData, Status> {
    let mut facts = SqlInfoDataBuilder::new();
    YES.iter().for_each(|fact| facts.append(*fact, true));
    NO.iter().for_each(|fact| facts.append(*fact, false));
    UNLIMITED.iter().for_each(|fact| facts.append(*fact, 0i64));
    NUMBERS.iter().for_each(|(fact, number)| facts.append(*fact, *number));
    TEXTS.iter().for_each(|(fact, text)| facts.append(*fact, *text));
    LISTS.iter().for_each(|(fact, words)| facts.append(*fact, *words));
    let no_conversions = std::collections::HashMap::<i32, Vec<i32>>::new();
    facts.append(SqlInfo::SqlSupportsConvert, no_conversions);
    facts.build().map_err(|error| Status::internal(error.to_string()))
}

/// The types that columns can be declared with.
pub fn of_types() -> Result<XdbcTypeInfoData, Status> {
    let mut types = XdbcTypeInfoDataBuilder::new();
    for (name, data_type, size) in [
        ("text", XdbcDataType::XdbcVarchar, None),
        ("bytea", XdbcDataType::XdbcVarbinary, None),
        ("bigint", XdbcDataType::XdbcBigint, Some(19)),
        ("double", XdbcDataType::XdbcDouble, Some(15)),
        ("decimal", XdbcDataType::XdbcDecimal, Some(38)),
        ("boolean", XdbcDataType::XdbcBit, Some(1)),
        ("date", XdbcDataType::XdbcDate, Some(10)),
        ("timestamp", XdbcDataType::XdbcTimestamp, Some(23)),
    ] {
        types.append(of_type(name, data_type, size));
    }
    types.build().map_err(|error| Status::internal(error.to_string()))
}

fn of_type(name: &str, data_type: XdbcDataType, column_size: Option<i32>) -> XdbcTypeInfo {
    let is_number = matches!(data_type, XdbcDataType::XdbcBigint | XdbcDataType::XdbcDouble);
    let is_time = data_type == XdbcDataType::XdbcTimestamp;
    let quote = match data_type {
        XdbcDataType::XdbcVarchar | XdbcDataType::XdbcTimestamp => Some("'"),
        XdbcDataType::XdbcVarbinary => Some("X'"),
        _ => None,
    };
    let datetime = if is_time { XdbcDataType::XdbcDatetime } else { data_type };
    XdbcTypeInfo {
        type_name: name.to_string(),
        data_type,
        column_size,
        literal_prefix: quote.map(str::to_string),
        literal_suffix: quote.map(|_| "'".to_string()),
        nullable: Nullable::NullabilityNullable,
        case_sensitive: data_type == XdbcDataType::XdbcVarchar,
        searchable: Searchable::Full,
        unsigned_attribute: is_number.then_some(false),
        auto_increment: is_number.then_some(false),
        local_type_name: Some(name.to_string()),
        minimum_scale: is_time.then_some(3),
        maximum_scale: is_time.then_some(3),
        sql_data_type: datetime,
        datetime_subcode: is_time.then_some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp),
        num_prec_radix: is_number.then_some(10),
        ..XdbcTypeInfo::default()
    }
}

pub fn primary_keys_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_name", DataType::Utf8, true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

/// The columns that tell the rows of a table apart.
pub fn primary_keys(table: &str, kind: Option<Kind>) -> Result<RecordBatch, ArrowError> {
    let own = match kind {
        Some(Kind::Set | Kind::SortedSet) => Some(MEMBER),
        Some(Kind::List) => Some(INDEX),
        Some(Kind::Stream) => Some(ID),
        None | Some(Kind::String | Kind::Hash) => None,
    };
    let columns: Vec<&str> = [KEY].into_iter().chain(own).collect();
    let count = columns.len();
    let same = |text: &str| Arc::new(StringArray::from(vec![text; count])) as ArrayRef;
    let no_names = Arc::new(StringArray::new_null(count));
    let numbers = Arc::new(Int32Array::from_iter_values(1..=count as i32));
    RecordBatch::try_new(
        primary_keys_schema(),
        vec![
            same(CATALOG),
            same(SCHEMA),
            same(table),
            Arc::new(StringArray::from(columns)),
            no_names,
            numbers,
        ],
    )
}

/// Keys that lead from table to table: there are none.
pub fn foreign_keys_schema() -> SchemaRef {
    let text = |name: &str, is_nullable| Field::new(name, DataType::Utf8, is_nullable);
    Arc::new(Schema::new(vec![
        text("pk_catalog_name", true),
        text("pk_db_schema_name", true),
        text("pk_table_name", false),
        text("pk_column_name", false),
        text("fk_catalog_name", true),
        text("fk_db_schema_name", true),
        text("fk_table_name", false),
        text("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}
