//! What is answered to which path.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use kvasir_acl::log::{Context, Denial};
use kvasir_reactor::{ConnectionId, Reactor, clock};

use crate::http::answer::Answer;
use crate::http::console::{self, Console};
use crate::http::request::{Method, Request};
use crate::http::tries::Tries;
use crate::info::census::Census;
use crate::metrics;
use crate::metrics::page::Format;
use crate::state::shared::Shared;
use crate::store::replication::upstream::Stage;

/// A page of metrics is shown for so long: however many ask, it is not made more often.
const PAGE_LIFE: Duration = Duration::from_millis(100);

pub struct Routes {
    pub console: Console,
    shared: &'static Shared,
    census: &'static Census,
    scrapes: metrics::Scrapes,
    tries: Tries,
    /// By format.
    pages: [Option<(Instant, Vec<u8>)>; 2],
}

impl Routes {
    pub fn new(shared: &'static Shared, census: &'static Census) -> Routes {
        Routes {
            console: Console::new(shared),
            shared,
            census,
            scrapes: metrics::Scrapes::default(),
            tries: Tries::default(),
            pages: [None, None],
        }
    }

    /// None: the client, which is at this address, is answered later.
    pub fn answer(
        &mut self,
        request: &Request,
        address: &str,
        client: ConnectionId,
        reactor: &mut Reactor,
    ) -> Option<Answer> {
        let is_look = matches!(request.method, Method::Get | Method::Head);
        if let Some(path) = request.path.strip_prefix("/api/") {
            return self.console.call(path, request, client, reactor);
        }
        if !is_look {
            return Some(Answer::refusal(405).with("Allow", "GET, HEAD"));
        }
        Some(match &request.path[..] {
            "/metrics" => self.metrics(request, address),
            "/healthz" => Answer::text(200, "ok\n"),
            "/readyz" => match self.what_is_missing() {
                None => Answer::text(200, "ok\n"),
                Some(what) => Answer::text(503, format!("{what}\n")),
            },
            path => console::page(path).unwrap_or_else(|| Answer::refusal(404)),
        })
    }

    /// Why clients had better go elsewhere.
    fn what_is_missing(&self) -> Option<&'static str> {
        let upstream = &self.shared.replication.upstream;
        if self.shared.saving.loading.is_under_way() {
            Some("data is loaded")
        } else if upstream.is_replica() && upstream.stage() != Stage::Online {
            Some("there is no link to the primary")
        } else {
            None
        }
    }

    fn metrics(&mut self, request: &Request, address: &str) -> Answer {
        if let Err(refusal) = self.admit(request, address) {
            return refusal;
        }
        let format = Format::of(request.text("accept").unwrap_or_default());
        let kept = &mut self.pages[format as usize];
        let page = match kept {
            Some((made, page)) if made.elapsed() < PAGE_LIFE => page.clone(),
            _ => {
                let page = metrics::page(self.shared, self.census, &mut self.scrapes, format);
                kept.insert((Instant::now(), page)).1.clone()
            }
        };
        Answer::new(200, format.kind(), page)
    }

    /// Looks at the password, where one is asked for.
    fn admit(&mut self, request: &Request, address: &str) -> Result<(), Answer> {
        let config = self.shared.config();
        let user = &config.metrics.user;
        if user.is_empty() {
            return Ok(());
        }
        let unknown = || {
            Answer::refusal(401)
                .with("WWW-Authenticate", "Basic realm=\"metrics\", charset=\"UTF-8\"")
        };
        let (name, password) = request.credentials().ok_or_else(unknown)?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        if !self.tries.may_try(host) {
            return Err(Answer::refusal(429));
        }
        if name == *user && self.shared.acl.authenticate(&name, &password).is_some() {
            return Ok(());
        }
        self.tries.add_wrong(host);
        self.note_wrong_password(address, name);
        Err(unknown())
    }

    /// As of AUTH.
    fn note_wrong_password(&self, address: &str, user: Vec<u8>) {
        self.shared.http_denied_auth.fetch_add(1, Relaxed);
        let (context, object) = (Context::TopLevel, b"/metrics".to_vec());
        let denial = Denial { reason: "auth", context, object, user };
        let len_max = usize::try_from(self.shared.config().acllog_max_len).unwrap_or(usize::MAX);
        let line = format!("id=0 addr={address} protocol=http");
        self.shared.acl.log().add(denial, line, clock::now_unix_ms(), len_max);
    }
}
