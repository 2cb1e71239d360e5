//! Laws of reading.

use super::{
    Verdict, Violation, after, create, log_in_pages, require, require_events, require_kind, require_log, sample,
    session,
};
use crate::backend::{Backend, ErrorKind, Expected, ReadLimit};
use crate::event::{Event, Item, JsonText};

/// Every member of a header comes back, unknown ones included, in order.
pub async fn the_header_comes_back_whole(backend: &impl Backend) -> Verdict {
    let (id, header) = session("head\u{e9}r")?;
    let mut header = header.cwd("C:\\work").subagent("parent", 2).agent_preset("preset");
    header.seed_length = Some(3);
    header.extra.push(("zz".into(), JsonText::parse(r#"{"b":1.50,"a":[1e5]}"#)?));
    header.extra.push(("aa".into(), JsonText::parse("null")?));
    backend.append(&id, Some(&header), Expected::ABSENT, &sample::turn(0, 1)?).await?;
    let opened = backend.open(&id).await?.header;
    require(opened == header, || format!("open: {} instead of {}", opened.to_line(), header.to_line()))?;
    let listed = backend.list(None, 10).await?.entries;
    let listed = listed.into_iter().next().ok_or_else(|| Violation { detail: "the session is not listed".into() })?;
    let listed = listed.header?;
    require(listed == header, || format!("list: {} instead of {}", listed.to_line(), header.to_line()))
}

/// A page never holds more events than asked for, holds one at least while there is one, and about as many bytes as asked for.
pub async fn read_limits_hold(backend: &impl Backend) -> Verdict {
    let text = "y".repeat(8 << 10);
    let mut script = sample::Script::from(0);
    for number in 0..60 {
        script.add("sample/text", &format!("\"{number} {text}\""), None)?;
    }
    let batch = script.deltas(1, 60, &text)?.batch()?;
    let events: Vec<Event> = batch.events().collect();
    let (id, _) = create(backend, "limits", &batch).await?;
    for limit in [1, 2, 3, 7, 59, 60, 61, 119, 120, 121] {
        let page = backend.read(&id, 0, ReadLimit { events: limit, bytes: usize::MAX }).await?;
        let count: u64 = page.items.iter().map(|item| item.next_seq() - item.first_seq()).sum();
        require(count >= 1 && count <= limit, || format!("a page of at most {limit} events holds {count}"))?;
    }
    for bytes in [0, 1, 20_000, 100_000, 400_000] {
        for from in [0, 57, 60, 100] {
            let page = backend.read(&id, from, ReadLimit { events: u64::MAX, bytes }).await?;
            let read: Vec<Event> = page.items.iter().flat_map(Item::events).collect();
            require(!read.is_empty(), || format!("a page of {bytes} bytes from {from} is empty"))?;
            let before_last: usize = read.iter().rev().skip(1).map(Event::weight).sum();
            require(before_last <= bytes.saturating_add(16 << 10), || {
                format!("a page of {bytes} bytes from {from} holds {before_last} before its last event")
            })?;
        }
        let read = log_in_pages(backend, &id, 0, ReadLimit { events: u64::MAX, bytes }).await?;
        require_events(&read, &events)?;
    }
    let empty = backend.read(&id, events.len() as u64, ReadLimit::default()).await?;
    require(empty.items.is_empty() && empty.next.is_none(), || format!("a page at the end: {empty:?}"))
}

/// Reading may start at any seq, inside a run as well, and beyond the end gives nothing.
pub async fn read_starts_at_any_seq(backend: &impl Backend) -> Verdict {
    let first = sample::turn(0, 1)?;
    let (id, head) = create(backend, "anywhere", &first).await?;
    let second = sample::turn(head.next_seq, 2)?;
    backend.append(&id, None, after(&head), &second).await?;
    let events: Vec<Event> = first.events().chain(second.events()).collect();
    for from in 0..events.len() {
        let read = log_in_pages(backend, &id, from as u64, ReadLimit::default()).await?;
        require_events(&read, events.get(from..).unwrap_or_default())?;
    }
    for from in [events.len() as u64, events.len() as u64 + 1, u64::MAX] {
        let page = backend.read(&id, from, ReadLimit::default()).await?;
        require(page.items.is_empty() && page.next.is_none(), || {
            format!("read from {from}, beyond the end: {page:?}")
        })?;
    }
    Ok(())
}

/// A packed run that is longer than a page comes in parts that join to the same bytes.
pub async fn runs_come_apart_at_page_limits(backend: &impl Backend) -> Verdict {
    let first = sample::Script::from(0).deltas(1, 40, "\\u00e9 \u{1f680}")?.batch()?;
    let (id, head) = create(backend, "runs", &first).await?;
    let second = sample::Script::from(head.next_seq).deltas(1, 40, "go on")?.batch()?;
    backend.append(&id, None, after(&head), &second).await?;
    let events: Vec<Event> = first.events().chain(second.events()).collect();
    for limit in [1, 2, 3, 5, 39, 40, 41, 79] {
        let read = log_in_pages(backend, &id, 0, ReadLimit { events: limit, bytes: usize::MAX }).await?;
        require_events(&read, &events)?;
    }
    let read = log_in_pages(backend, &id, 17, ReadLimit { events: 10, bytes: 300 }).await?;
    require_events(&read, events.get(17..).unwrap_or_default())
}

/// An event larger than a page limit comes whole.
pub async fn a_large_event_comes_whole(backend: &impl Backend) -> Verdict {
    let text = "z\\u0007 ".repeat(1 << 18);
    let batch = sample::Script::from(0).add("sample/large", &format!("\"{text}\""), None)?.batch()?;
    let (id, head) = create(backend, "large", &batch).await?;
    let second = sample::turn(head.next_seq, 1)?;
    backend.append(&id, None, after(&head), &second).await?;
    let page = backend.read(&id, 0, ReadLimit { events: 100, bytes: 1000 }).await?;
    require(page.next == Some(1), || format!("the page behind the large event starts at {:?}", page.next))?;
    require_log(backend, &id, &[&batch, &second]).await
}

/// Single events come in the order they are asked for, as often as they are asked for; a seq beyond the end is not found.
pub async fn single_events_come_in_the_order_asked(backend: &impl Backend) -> Verdict {
    let batch = sample::turn(0, 1)?;
    let events: Vec<Event> = batch.events().collect();
    let (id, head) = create(backend, "single", &batch).await?;
    let seqs = [16, 0, 5, 4, 4, 9, 13];
    let read = backend.read_events(&id, &seqs).await?;
    let expected: Vec<Event> =
        seqs.iter().filter_map(|seq| events.iter().find(|event| event.seq() == *seq).cloned()).collect();
    require_events(&read, &expected)?;
    require(backend.read_events(&id, &[]).await?.is_empty(), || "asking for nothing gave something".into())?;
    require_kind("an event beyond the end", backend.read_events(&id, &[0, head.next_seq]).await, &[ErrorKind::NotFound])
}

/// Readers need no ownership: beside a writer they see the log as its appends left it, and disturb nothing.
pub async fn read_beside_a_writer(backend: &impl Backend) -> Verdict {
    let mut log = vec![sample::turn(0, 1)?];
    let (id, mut head) = create(backend, "beside", &sample::turn(0, 1)?).await?;
    for number in 2..6 {
        require_log(backend, &id, &log.iter().collect::<Vec<_>>()).await?;
        let opened = backend.open(&id).await?;
        require(opened.head == head, || format!("a reader sees {:?}, the writer has {head:?}", opened.head))?;
        require(opened.torn.is_none(), || format!("a whole log is torn: {:?}", opened.torn))?;
        let batch = sample::turn(head.next_seq, number)?;
        head = backend.append(&id, None, after(&head), &batch).await?;
        log.push(batch);
    }
    backend.release(&id, head.epoch).await?;
    require(!backend.open(&id).await?.live, || "a released session counts as live".into())?;
    require_log(backend, &id, &log.iter().collect::<Vec<_>>()).await
}
