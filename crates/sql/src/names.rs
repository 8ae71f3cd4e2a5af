//! Which tables there are: those that were created, and every pattern that is named as one, as in
//! `SELECT * FROM "user:*"`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{
    MemorySchemaProvider, SchemaProvider, Session, TableProvider, TableProviderFactory,
};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::CreateExternalTable;

use crate::definition::{Definition, Said};
use crate::flags::Limits;
use crate::keys::Pattern;
use crate::sample;
use crate::table::{Place, Table};

/// Makes tables of patterns.
#[derive(Clone)]
pub struct Maker {
    pub place: Arc<Place>,
    pub limits: Limits,
    /// Tells whoever sits there what was guessed.
    pub tell: fn(&str),
}

impl std::fmt::Debug for Maker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Maker({:?})", self.place)
    }
}

impl Maker {
    fn table(&self, definition: Definition) -> Table {
        Table { definition, place: Arc::clone(&self.place), persisted: None }
    }

    /// What a look at some keys says of them; `None` if there are none.
    fn guess(&self, pattern: &Pattern, said: &Said) -> Result<Option<Definition>> {
        let (keys_max, nulls) =
            (self.limits.sample, said.nulls_misfits.unwrap_or(self.limits.nulls));
        let guess = || sample::guess(&self.place, pattern, said.kind, keys_max, nulls);
        let definition = tokio::task::block_in_place(guess)?;
        if let Some(definition) = &definition {
            (self.tell)(&definition.describe());
        }
        Ok(definition)
    }

    fn declared(&self, command: &CreateExternalTable, said: &Said) -> Result<Definition> {
        let [location] = &command.locations[..] else {
            return plan_err!("a table of KVASIR has one LOCATION, a pattern of keys");
        };
        let (pattern, columns) = (Pattern::new(location), command.schema.as_arrow());
        let nulls_misfits = said.nulls_misfits.unwrap_or(self.limits.nulls);
        if !columns.fields().is_empty()
            && let Some(definition) =
                Definition::declared(pattern.clone(), said.kind, columns, nulls_misfits)?
        {
            return Ok(definition);
        }
        let Some(guessed) = self.guess(&pattern, said)? else {
            return plan_err!(
                "no key matches {pattern}: say columns, and OPTIONS (type 'hash'), to have a table \
                 that is empty"
            );
        };
        // Members alone do not say of what; the keys do.
        let declared = Definition::declared(pattern, guessed.kind, columns, nulls_misfits)?;
        let has_columns = !columns.fields().is_empty();
        Ok(declared.filter(|_| has_columns).unwrap_or(guessed))
    }
}

#[async_trait]
impl TableProviderFactory for Maker {
    async fn create(
        &self,
        _: &dyn Session,
        command: &CreateExternalTable,
    ) -> Result<Arc<dyn TableProvider>> {
        let said = Said::of(&command.options)?;
        let table = self.table(self.declared(command, &said)?);
        Ok(Arc::new(match said.is_persisted {
            true => tokio::task::block_in_place(|| table.persist())?,
            false => table,
        }))
    }
}

/// The schema `public`.
#[derive(Debug)]
pub struct Names {
    pub created: MemorySchemaProvider,
    pub maker: Maker,
}

#[async_trait]
impl SchemaProvider for Names {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.created.table_names();
        names.sort();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.created.table(name).await? {
            return Ok(Some(table));
        }
        if !name.contains(['*', '?', '[', ':']) {
            return Ok(None);
        }
        let said = Said::default();
        match self.maker.guess(&Pattern::new(name), &said)? {
            Some(definition) => Ok(Some(Arc::new(self.maker.table(definition)))),
            None => plan_err!("no key matches {name}"),
        }
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.created.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.created.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.created.table_exist(name)
    }
}
