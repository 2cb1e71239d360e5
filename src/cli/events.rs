//! `events`: a session's events as they are.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use sessionlog::backend::ReadLimit;
use sessionlog::event::{Event, Item, SessionId};
use sessionlog::segment::{Reader, SegmentBackend, Selection};
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
    let types = |name: &str| glob.as_ref().is_none_or(|glob| glob.matches(name));
    let end = arguments.to.map_or(u64::MAX, |to| to.saturating_add(1));
    let selection = Selection::types(&types).before(end);
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    let mut reader = backend.engine().reader(&id)?;
    let followed = Incarnation::of(reader.directory());
    reader.seek(arguments.from);
    while left > 0 && reader.position() < end {
        let mut limit = ReadLimit::default();
        if glob.is_none() {
            // A short answer is not made of a long page.
            limit.events = limit.events.min(left);
        }
        let read = reader.next_page_of(limit, &selection);
        if arguments.follow {
            still_there(&id, followed.as_ref(), &reader, out)?;
        }
        let page = match read {
            Ok(page) => page,
            Err(error) => {
                out.flush()?;
                return Err(error.into());
            }
        };
        for event in page.items.iter().flat_map(Item::events).take(usize::try_from(left).unwrap_or(usize::MAX)) {
            print(&event, json, out)?;
            left -= 1;
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

/// Tells a session from one that is made under its id after it is gone: by the file with its header, which is written once.
#[derive(Debug, PartialEq, Eq)]
struct Incarnation {
    #[cfg(unix)]
    inode: u64,
    modified: Option<SystemTime>,
}

impl Incarnation {
    /// `None` where there is no session.
    fn of(directory: &Path) -> Option<Self> {
        let stat = fs::metadata(directory.join("header")).ok()?;
        Some(Self {
            #[cfg(unix)]
            inode: std::os::unix::fs::MetadataExt::ino(&stat),
            modified: stat.modified().ok(),
        })
    }
}

/// Checks that a session that is followed is still the same. What takes a deleted one's place goes on where that ended only by
/// accident.
fn still_there(
    id: &SessionId,
    followed: Option<&Incarnation>,
    reader: &Reader,
    out: &mut Output,
) -> Result<(), Failure> {
    let now = Incarnation::of(reader.directory());
    if now.as_ref() == followed {
        return Ok(());
    }
    out.flush()?;
    let since = if now.is_some() { ", and another of the same id has taken its place" } else { "" };
    Err(Failure::missing(format!("session {id} was deleted while it was followed{since}")))
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
