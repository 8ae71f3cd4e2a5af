//! A worker tells those whom it concerns what the calls of a primary's stream have done.

use kvasir_pubsub::post::Origin;

use crate::calls::{fence, notifications};
use crate::clients::tracker::NOBODY;
use crate::run::worker::Worker;
use crate::workers::news::{Item, News};

impl Worker {
    pub fn spread(&mut self, news: News) {
        let (shared, index, core) = (self.shared, self.index, &mut self.core);
        core.see_listeners(shared);
        for item in news.items {
            if let Item::Event(event) = item {
                core.tally.events.push(event);
                continue;
            }
            notifications::tell(shared, index, core, NOBODY);
            let origin = Origin { worker: index, fence: fence::of_news(core) };
            match item {
                Item::Event(_) => {}
                Item::Message(kind, channel, message) => {
                    shared.pubsub.publish(origin, kind, &channel, &message);
                }
                Item::Flushed => shared.tracking.flush(&shared.clients, origin),
            }
        }
        notifications::tell(shared, index, core, NOBODY);
        core.tally.ready.extend(news.ready);
    }
}
