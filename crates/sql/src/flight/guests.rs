//! Who has logged in: a session for each, found by the token that its calls carry.
//!
//! Users are the server's own. A password is tried by connecting with it; nothing is known here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::flags::Limits;
use crate::flight::answer::status;
use crate::flight::prepared::Prepared;
use crate::node::Node;
use crate::session::{MIB, Session};
use crate::statement;

/// ADBC leaves the padding out, others have it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Beyond so many, who has been silent the longest has to log in again.
const GUESTS_MAX: usize = 1024;

pub struct Guests {
    node: Node,
    limits: Limits,
    runtime: Arc<RuntimeEnv>,
    /// What every session begins with.
    init: String,
    known: Mutex<HashMap<String, Known>>,
}

struct Known {
    guest: Arc<Guest>,
    used: Instant,
}

/// Who has logged in.
pub struct Guest {
    pub session: Session,
    pub prepared: Prepared,
}

impl Guests {
    pub fn new(node: Node, limits: Limits, runtime: Arc<RuntimeEnv>, init: String) -> Guests {
        // Its own user is nobody else's.
        let node = node.without_user();
        Guests { node, limits, runtime, init, known: Mutex::default() }
    }

    /// What rows may take that wait to be written.
    pub fn memory_bytes(&self) -> usize {
        self.limits.memory.saturating_mul(MIB)
    }

    /// Logs in by `Basic`, and returns the token of the session.
    pub async fn log_in(&self, metadata: &MetadataMap) -> Result<String, Status> {
        let (user, password) = match header(metadata)? {
            Some(header) => credentials(header)?,
            None => return Err(Status::unauthenticated("a handshake has a user and a password")),
        };
        let token = uuid::Uuid::new_v4().simple().to_string();
        let node = self.node.with_user(Some(&user), &password);
        self.admit(&token, node).await?;
        Ok(token)
    }

    /// Whose call it is, by a token, or by user and password, or as nobody in particular.
    pub async fn find(&self, metadata: &MetadataMap) -> Result<Arc<Guest>, Status> {
        let header = header(metadata)?.unwrap_or_default();
        let key = after(header, "Bearer").unwrap_or(header);
        if let Some(known) = self.known().get_mut(key) {
            known.used = Instant::now();
            return Ok(Arc::clone(&known.guest));
        }
        if after(header, "Bearer").is_some() && !is_nobody(key) {
            return Err(Status::unauthenticated(
                "unauthenticated: no login has this token: log in again, with user and password",
            ));
        }
        let node = match key {
            key if is_nobody(key) => self.node.clone(),
            header => {
                let (user, password) = credentials(header)?;
                self.node.with_user(Some(&user), &password)
            }
        };
        self.admit(key, node).await
    }

    async fn admit(&self, key: &str, node: Node) -> Result<Arc<Guest>, Status> {
        let open = || Session::new(node, &self.limits, &self.runtime, |_| {});
        let session = tokio::task::block_in_place(open).map_err(|error| {
            let told = status(&error);
            match is_nobody(key) && told.code() == Code::Unauthenticated {
                // The default user has a password, or is off.
                true => Status::unauthenticated(format!(
                    "unauthenticated: log in with user and password: {}",
                    told.message()
                )),
                false => told,
            }
        })?;
        for statement in statement::parse(&self.init).map_err(|error| status(&error))? {
            let done = async {
                let plan = session.plan(statement).await?;
                session.run(plan).await?.collect().await
            };
            done.await.map_err(|error| status(&error))?;
        }
        let guest = Arc::new(Guest { session, prepared: Prepared::default() });
        let mut known = self.known();
        if known.len() >= GUESTS_MAX {
            let silent = known.iter().min_by_key(|(_, known)| known.used);
            let silent = silent.map(|(key, _)| key.clone());
            silent.and_then(|key| known.remove(&key));
        }
        let entry = Known { guest: Arc::clone(&guest), used: Instant::now() };
        known.insert(key.to_string(), entry);
        Ok(guest)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn header(metadata: &MetadataMap) -> Result<Option<&str>, Status> {
    let header = metadata.get("authorization").map(|value| value.to_str());
    header.transpose().map_err(|_| Status::unauthenticated("the authorization is no text"))
}

/// What stands behind the word that says what kind of authorization it is.
fn after<'h>(header: &'h str, kind: &str) -> Option<&'h str> {
    let (word, rest) = header.split_once(' ').unwrap_or((header, ""));
    word.eq_ignore_ascii_case(kind).then(|| rest.trim())
}

/// No token, or that which flightsql-dbapi sends where it has none.
fn is_nobody(token: &str) -> bool {
    matches!(token, "" | "None")
}

/// User and password of `Basic`.
fn credentials(header: &str) -> Result<(String, String), Status> {
    let encoded = after(header, "Basic");
    let decoded = encoded.and_then(|encoded| BASE64.decode(encoded).ok());
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let both = text.as_deref().and_then(|text| text.split_once(':'));
    let (user, password) =
        both.ok_or_else(|| Status::unauthenticated("the authorization is not Basic"))?;
    Ok((user.to_string(), password.to_string()))
}
