//! Laws of sessions as wholes: listing, revisions, forking, deleting, ids.

use std::collections::BTreeMap;

use super::{
    Verdict, Violation, after, create, require, require_events, require_kind, require_log, sample, session, whole_log,
};
use crate::backend::{Backend, ErrorKind, Expected, ReadLimit, Revision};
use crate::event::{Event, SessionHeader, SessionId};

/// Whatever asks about a session that does not exist learns that.
pub async fn unknown_sessions_are_not_found(backend: &impl Backend) -> Verdict {
    let (id, _) = session("unknown")?;
    let kinds = [ErrorKind::NotFound];
    require_kind("open", backend.open(&id).await, &kinds)?;
    require_kind("read", backend.read(&id, 0, ReadLimit::default()).await, &kinds)?;
    require_kind("take_over", backend.take_over(&id).await, &kinds)?;
    require_kind("head", backend.head(&id).await, &kinds)?;
    require_kind("revision", backend.revision(&id).await, &kinds)?;
    require_kind("delete", backend.delete(&id).await, &kinds)?;
    require_kind("read_events", backend.read_events(&id, &[0]).await, &kinds)?;
    let page = backend.list(None, 10).await?;
    require(page.entries.is_empty() && page.next.is_none(), || format!("an empty backend lists {page:?}"))
}

/// The revision stays while the log stays and never comes back to an earlier value, not even when the session is made anew.
pub async fn revision_changes_with_every_change(backend: &impl Backend) -> Verdict {
    let mut seen: Vec<Revision> = Vec::new();
    for round in 0..2 {
        let (id, mut head) = create(backend, "revision", &sample::turn(0, 1)?).await?;
        for number in 2..5 {
            let revision = backend.revision(&id).await?;
            require(revision == head.revision, || {
                format!("revision() is {revision:?}, the head has {:?}", head.revision)
            })?;
            let again = backend.revision(&id).await?;
            require(again == revision, || format!("{revision:?} became {again:?} without a change"))?;
            require(!seen.contains(&revision), || format!("{revision:?} came back in round {round}"))?;
            seen.push(revision);
            head = backend.append(&id, None, after(&head), &sample::turn(head.next_seq, number)?).await?;
        }
        backend.release(&id, head.epoch).await?;
        backend.delete(&id).await?;
    }
    Ok(())
}

/// Two stores never give one revision to a session of the same id and content.
pub async fn revisions_differ_between_stores<B: Backend>(one: &B, other: &B) -> Verdict {
    let batch = sample::turn(0, 1)?;
    let (_, first) = create(one, "twin", &batch).await?;
    let (_, second) = create(other, "twin", &batch).await?;
    require(first.revision != second.revision, || format!("both stores say {:?}", first.revision))
}

/// Pages of a listing hold every session once, in an order that is the same each time, whatever the page size.
pub async fn listing_pages_are_complete_and_stable(backend: &impl Backend) -> Verdict {
    let mut ids = Vec::new();
    for number in 0..23_u32 {
        let id = format!("list-{}-{number}", number.wrapping_mul(2_654_435_761) % 1000);
        create(backend, &id, &sample::turn(0, 1)?).await?;
        ids.push(id);
    }
    ids.sort();
    let mut reference: Option<Vec<String>> = None;
    for size in [1, 2, 5, 22, 23, 24, 1000] {
        let mut listed = Vec::new();
        let mut at: Option<String> = None;
        loop {
            let page = backend.list(at.as_deref(), size).await?;
            require(page.entries.len() <= size, || format!("a page of {size} holds {}", page.entries.len()))?;
            require(!page.entries.is_empty() || page.next.is_none(), || "an empty page that goes on".into())?;
            for entry in page.entries {
                listed.push(entry.header?.id);
            }
            require(listed.len() <= ids.len(), || format!("{} of {} listed, no end", listed.len(), ids.len()))?;
            at = page.next;
            if at.is_none() {
                break;
            }
        }
        let order = reference.get_or_insert_with(|| listed.clone());
        require(*order == listed, || format!("pages of {size} list {listed:?}, not {order:?}"))?;
        let mut sorted = listed;
        sorted.sort();
        require(sorted == ids, || format!("listed {sorted:?}, stored {ids:?}"))?;
    }
    Ok(())
}

/// Ids are any text: none names another session, a place outside, or nothing.
pub async fn hostile_ids_stay_apart(backend: &impl Backend) -> Verdict {
    let long = "x".repeat(300);
    let longer = format!("{}y", "x".repeat(299));
    let longest = "\u{1f680}".repeat(256);
    let ids = [
        "../../x",
        "..",
        ".",
        "/",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "a",
        "A",
        "\u{e4}",
        "a\u{308}",
        "\u{c4}",
        "CON",
        "con",
        "con.txt",
        "NUL",
        "COM1",
        "nul\0byte",
        "\0",
        "trailing.",
        "trailing",
        "trailing ",
        " ",
        "%2e%2e",
        "a%2Fb",
        "~",
        "-",
        "--help",
        "line\nbreak",
        "\u{1b}[2J",
        "STORE",
        "catalog",
        "sessions",
        "lock",
        "header",
        "\u{2028}",
        "\u{200b}",
        "$HOME",
        "*",
        "a:b",
        "session",
        &long,
        &longer,
        &longest,
    ];
    let mut stored: BTreeMap<&str, (SessionId, SessionHeader)> = BTreeMap::new();
    for (number, id) in ids.iter().enumerate() {
        let (session_id, header) = session(id)?;
        let header = header.agent_preset(format!("number {number}"));
        let batch = sample::turn(0, number as u64 + 1)?;
        backend
            .append(&session_id, Some(&header), Expected::ABSENT, &batch)
            .await
            .map_err(|error| Violation { detail: format!("creating {session_id:?}: {error}") })?;
        stored.insert(id, (session_id, header));
    }
    for (number, id) in ids.iter().enumerate() {
        let Some((session_id, header)) = stored.get(id) else { continue };
        let opened = backend.open(session_id).await?.header;
        require(opened == *header, || format!("{session_id:?} opens as {}", opened.to_line()))?;
        require_log(backend, session_id, &[&sample::turn(0, number as u64 + 1)?]).await?;
    }
    let mut listed: Vec<String> = Vec::new();
    for entry in backend.list(None, 1000).await?.entries {
        listed.push(entry.header?.id);
    }
    listed.sort();
    let expected: Vec<String> = stored.keys().map(|id| (*id).to_owned()).collect();
    require(listed == expected, || format!("listed {listed:?}, stored {expected:?}"))?;
    let (absent, _) = session("b")?;
    require_kind("an id like no other", backend.open(&absent).await, &[ErrorKind::NotFound])
}

/// What happens to one session does not show in another.
pub async fn sessions_do_not_touch_each_other(backend: &impl Backend) -> Verdict {
    let first = sample::turn(0, 1)?;
    let (one, head) = create(backend, "one", &first).await?;
    let (two, other) = create(backend, "two", &sample::turn(0, 9)?).await?;
    let second = sample::turn(head.next_seq, 2)?;
    backend.append(&one, None, after(&head), &second).await?;
    let found = backend.head(&two).await?;
    require(found == other, || format!("an append to one changed two: {found:?}"))?;
    backend.release(&two, other.epoch).await?;
    backend.delete(&two).await?;
    require_log(backend, &one, &[&first, &second]).await
}

/// A fork holds the source's events up to and including the boundary, byte by byte; the source does not change.
pub async fn fork_copies_exactly_the_prefix(backend: &impl Backend) -> Verdict {
    let (first, second) = (sample::turn(0, 1)?, sample::turn(17, 2)?);
    let (source, head) = create(backend, "source", &first).await?;
    let head = backend.append(&source, None, after(&head), &second).await?;
    let events: Vec<Event> = first.events().chain(second.events()).collect();
    // 6 and 22 lie inside runs.
    for boundary in [0, 6, 16, 17, 22, 33] {
        let (child, mut header) = session(&format!("fork-{boundary}"))?;
        header.parent_session = Some("source".into());
        header.seed_length = Some(boundary + 1);
        let forked = backend.fork(&source, boundary, &header).await?;
        require(forked.next_seq == boundary + 1, || format!("a fork at {boundary} ends at {}", forked.next_seq))?;
        let opened = backend.open(&child).await?;
        require(opened.header == header, || format!("the child's header is {}", opened.header.to_line()))?;
        require(!opened.live, || "a fork has a writer".into())?;
        let cut = usize::try_from(boundary + 1).unwrap_or(usize::MAX);
        require_events(&whole_log(backend, &child).await?, events.get(..cut).unwrap_or_default())?;
        let taken = backend.take_over(&child).await?;
        let more = sample::turn(boundary + 1, 7)?;
        backend.append(&child, None, after(&taken.head), &more).await?;
        let grown: Vec<Event> = events.get(..cut).unwrap_or_default().iter().cloned().chain(more.events()).collect();
        require_events(&whole_log(backend, &child).await?, &grown)?;
        let found = backend.head(&source).await?;
        require(found == head, || format!("a fork changed its source: {found:?}, was {head:?}"))?;
        require_events(&whole_log(backend, &source).await?, &events)?;
    }
    backend.append(&source, None, after(&head), &sample::turn(head.next_seq, 3)?).await?;
    Ok(())
}

/// A fork of nothing, beyond the end, or onto an existing session is refused and leaves nothing.
pub async fn fork_refuses_what_is_not_there(backend: &impl Backend) -> Verdict {
    let batch = sample::turn(0, 1)?;
    let (source, head) = create(backend, "origin", &batch).await?;
    let (missing, _) = session("missing")?;
    let (child, header) = session("child")?;
    require_kind("a fork of nothing", backend.fork(&missing, 0, &header).await, &[ErrorKind::NotFound])?;
    for boundary in [head.next_seq, u64::MAX - 1, u64::MAX] {
        let result = backend.fork(&source, boundary, &header).await;
        require_kind("a fork beyond the end", result, &[ErrorKind::NotFound])?;
    }
    require_kind("the child of a refused fork", backend.open(&child).await, &[ErrorKind::NotFound])?;
    let existing = sample::turn(0, 5)?;
    create(backend, "child", &existing).await?;
    require_kind("a fork onto a session", backend.fork(&source, 3, &header).await, &[ErrorKind::Exists])?;
    require_log(backend, &child, &[&existing]).await?;
    require_log(backend, &source, &[&batch]).await
}

/// A deleted session is gone for every question, and its id can be used again for a new one that knows nothing of it.
pub async fn delete_then_not_found(backend: &impl Backend) -> Verdict {
    let batch = sample::turn(0, 1)?;
    let (id, head) = create(backend, "gone", &batch).await?;
    create(backend, "stays", &batch).await?;
    match backend.delete(&id).await {
        Err(error) if error.kind == ErrorKind::Busy => {
            require_log(backend, &id, &[&batch]).await?;
            backend.release(&id, head.epoch).await?;
            backend.delete(&id).await?;
        }
        Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    let kinds = [ErrorKind::NotFound];
    require_kind("open", backend.open(&id).await, &kinds)?;
    require_kind("read", backend.read(&id, 0, ReadLimit::default()).await, &kinds)?;
    require_kind("delete again", backend.delete(&id).await, &kinds)?;
    let result = backend.append(&id, None, after(&head), &sample::turn(head.next_seq, 2)?).await;
    require(result.is_err(), || "an append to a deleted session succeeded".into())?;
    require_kind("open after a late append", backend.open(&id).await, &kinds)?;
    let listed = backend.list(None, 10).await?.entries.len();
    require(listed == 1, || format!("{listed} sessions listed where one is left"))?;
    let anew = sample::turn(0, 4)?;
    create(backend, "gone", &anew).await?;
    require_log(backend, &id, &[&anew]).await
}
