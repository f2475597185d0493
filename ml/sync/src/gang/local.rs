//! Links within a process: a message is a call, an array is shared.

use super::{
    desk::Desk,
    links::{Asker, Links, Meter, Origin, bytes},
    node::Event as NodeEvent,
};
use crate::{
    Traffic,
    protocol::{Event, Generation, LinkId, MemberId, ShardReply, ShardRequest, ToCoordinator, Values, View},
};
use std::sync::Arc;

pub(crate) struct LocalLinks {
    desk: Arc<Desk>,
    link: LinkId,
    meter: Meter,
}

impl LocalLinks {
    pub fn new(desk: Arc<Desk>, link: LinkId) -> Self {
        Self { desk, link, meter: Meter::default() }
    }
}

impl Links for LocalLinks {
    fn tell(&self, message: ToCoordinator) {
        self.desk.handle(Event::Message { link: self.link, message });
    }

    fn ask(&self, origin: Origin, holder: MemberId, request: ShardRequest, arrays: Vec<Values>) {
        // One that is gone answers nothing: the coordinator forms another view.
        let Some(node) = self.desk.housemates.get(holder) else { return };
        let asker = Asker::of(&request, origin);
        match origin {
            // Whoever brings the last gradient makes the update.
            Origin::Member => {
                self.meter.sent(bytes(&arrays));
                node.asked(asker, request, arrays);
            }
            // The replica that asks is held: none may be waited for.
            Origin::Replica => node.post(NodeEvent::Asked(asker, request, arrays)),
        }
    }

    fn reply(&self, to: Asker, reply: ShardReply, arrays: Vec<Values>) {
        let Some(node) = self.desk.housemates.get(to.member) else { return };
        node.post(match to.origin {
            Origin::Member => NodeEvent::Answered(to, reply, arrays),
            Origin::Replica => NodeEvent::Confirmed(reply),
        });
    }

    fn freeze(&self, _: Generation) {}

    fn view(&self, _: &View) {}

    fn took(&self, bytes: u64) {
        self.meter.received(bytes);
    }

    fn traffic(&self) -> Traffic {
        self.meter.read()
    }
}
