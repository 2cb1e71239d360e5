//! `events`: a session's events as they are.

use std::time::Duration;

use sessionlog::backend::{ErrorKind, ReadLimit};
use sessionlog::event::{Event, Item};
use sessionlog::segment::SegmentBackend;
use wildmatch::WildMatch;

use super::args::Events;
use super::failure::Failure;
use super::output::{Output, one_line, shortened};
use super::{store, time};

/// How often a follower looks for new events: an append shows within a tenth of a second.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(25);

pub async fn run(backend: &SegmentBackend, arguments: &Events, json: bool, out: &mut Output) -> Result<(), Failure> {
    if arguments.to.is_some_and(|to| to < arguments.from) {
        return Err(Failure::usage("--to lies before --from"));
    }
    let id = store::resolve(backend, &arguments.id).await?;
    let glob = arguments.event_type.as_deref().map(WildMatch::new);
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    let mut reader = backend.engine().reader(&id)?;
    reader.seek(arguments.from);
    while left > 0 && arguments.to.is_none_or(|to| reader.position() <= to) {
        let page = match reader.next_page(ReadLimit::default()) {
            Ok(page) => page,
            Err(error) => {
                out.flush()?;
                if arguments.follow && error.kind == ErrorKind::NotFound {
                    return Err(Failure::missing(format!("session {id} was deleted while it was followed")));
                }
                return Err(error.into());
            }
        };
        let wanted = page.items.iter().flat_map(Item::events);
        for event in wanted.take_while(|event| arguments.to.is_none_or(|to| event.seq() <= to)) {
            if left > 0 && glob.as_ref().is_none_or(|glob| glob.matches(event.event_type())) {
                print(&event, json, out)?;
                left -= 1;
            }
        }
        if page.next.is_none() {
            if !arguments.follow {
                break;
            }
            out.flush()?;
            if page.items.is_empty() {
                if Output::is_closed() {
                    return Err(Failure::ClosedPipe);
                }
                tokio::time::sleep(FOLLOW_INTERVAL).await;
            }
        }
    }
    Ok(())
}

fn print(event: &Event, json: bool, out: &mut Output) -> Result<(), Failure> {
    if json {
        out.line(&event.to_line())?;
        return Ok(());
    }
    let data = one_line(&shortened(&event.data(), 100));
    out.line(&format!(
        "{:>8}  {}  {:<20} {data}",
        event.seq(),
        time::format(event.time()),
        one_line(event.event_type())
    ))?;
    Ok(())
}
