//! Laws of appending.

use super::{Verdict, Violation, after, both, create, require, require_kind, require_log, sample, session, whole_log};
use crate::backend::{AppendError, Backend, BatchMark, ErrorKind, Expected};

/// An append lands exactly when the stored next seq and epoch are the expected ones; otherwise it is a conflict that names what
/// is stored, and nothing of it was written.
pub async fn append_is_compare_and_swap(backend: &impl Backend) -> Verdict {
    let first = sample::turn(0, 1)?;
    let (id, head) = create(backend, "compare", &first).await?;
    require(head.next_seq == first.next_seq(), || format!("the head after creation says next seq {}", head.next_seq))?;
    let stored = after(&head);
    let wrong = [
        Expected { next_seq: stored.next_seq - 1, ..stored },
        Expected { next_seq: stored.next_seq + 1, ..stored },
        Expected { next_seq: 0, ..stored },
        Expected { epoch: stored.epoch + 1, ..stored },
        Expected { epoch: stored.epoch - 1, ..stored },
    ];
    for expected in wrong {
        let batch = sample::turn(expected.next_seq, 2)?;
        match backend.append(&id, None, expected, &batch).await {
            Err(AppendError::Conflict { expected: named, found }) => {
                require(named == expected && found == stored, || {
                    format!("the conflict names {named:?} and {found:?}; expected was {expected:?}, stored {stored:?}")
                })?;
            }
            other => {
                return Err(Violation { detail: format!("append expecting {expected:?}: {other:?}, no conflict") });
            }
        }
        require_log(backend, &id, &[&first]).await?;
    }
    let second = sample::turn(stored.next_seq, 2)?;
    let head = backend.append(&id, None, stored, &second).await?;
    require(head.epoch == stored.epoch, || format!("an append changed the epoch to {}", head.epoch))?;
    require_log(backend, &id, &[&first, &second]).await
}

/// Header and first batch appear together; a creation that is refused leaves nothing.
pub async fn creation_is_atomic(backend: &impl Backend) -> Verdict {
    let first = sample::turn(0, 1)?;
    let (id, header) = session("atomic")?;
    let (other, _) = session("atomic-other")?;
    let late = sample::turn(5, 1)?;
    let refused = [
        ("without a header", backend.append(&id, None, Expected::ABSENT, &first).await),
        ("under another id", backend.append(&other, Some(&header), Expected::ABSENT, &first).await),
        ("with a batch that does not start at 0", backend.append(&id, Some(&header), Expected::ABSENT, &late).await),
    ];
    for (what, result) in refused {
        require(matches!(result, Err(AppendError::Failed(_))), || format!("creation {what}: {result:?}"))?;
    }
    for id in [&id, &other] {
        require_kind("open after a refused creation", backend.open(id).await, &[ErrorKind::NotFound])?;
    }
    let listed = backend.list(None, 10).await?.entries.len();
    require(listed == 0, || format!("refused creations left {listed} listed"))?;
    backend.append(&id, Some(&header), Expected::ABSENT, &first).await?;
    let opened = backend.open(&id).await?;
    require(opened.header == header, || format!("the header came back as {}", opened.header.to_line()))?;
    require_log(backend, &id, &[&first]).await
}

/// Of two creations of one id the second is a conflict and changes nothing.
pub async fn two_creations_leave_one_session(backend: &impl Backend) -> Verdict {
    let (first, second) = (sample::turn(0, 1)?, sample::turn(0, 2)?);
    let (id, head) = create(backend, "twice", &first).await?;
    let (_, header) = session("twice")?;
    let header = header.agent_preset("second");
    match backend.append(&id, Some(&header), Expected::ABSENT, &second).await {
        Err(AppendError::Conflict { found, .. }) => {
            require(found == after(&head), || format!("the conflict names {found:?}"))?;
        }
        other => return Err(Violation { detail: format!("the second creation: {other:?}") }),
    }
    require(backend.open(&id).await?.header.agent_preset.is_none(), || "the second header replaced the first".into())?;
    require_log(backend, &id, &[&first]).await?;
    let (id, header) = session("raced")?;
    let (a, b) = both(
        backend.append(&id, Some(&header), Expected::ABSENT, &first),
        backend.append(&id, Some(&header), Expected::ABSENT, &second),
    )
    .await;
    let winner = match (a, b) {
        (Ok(_), Err(AppendError::Conflict { .. })) => &first,
        (Err(AppendError::Conflict { .. }), Ok(_)) => &second,
        other => return Err(Violation { detail: format!("two racing creations: {other:?}") }),
    };
    require_log(backend, &id, &[winner]).await
}

/// A batch that cannot stand where it is to go, and an append to nothing, fail and change nothing.
pub async fn a_refused_append_leaves_no_trace(backend: &impl Backend) -> Verdict {
    let first = sample::turn(0, 1)?;
    let (id, head) = create(backend, "refused", &first).await?;
    for from in [head.next_seq + 1, head.next_seq - 1, 0] {
        let result = backend.append(&id, None, after(&head), &sample::turn(from, 2)?).await;
        require(matches!(result, Err(AppendError::Failed(_))), || {
            format!("a batch from seq {from} where {} is next: {result:?}", head.next_seq)
        })?;
    }
    let (missing, _) = session("missing")?;
    let result = backend.append(&missing, None, Expected { epoch: 1, next_seq: 0 }, &first).await;
    require(result.is_err(), || "an append to a session that does not exist succeeded".into())?;
    require_kind("open", backend.open(&missing).await, &[ErrorKind::NotFound])?;
    require_log(backend, &id, &[&first]).await?;
    let second = sample::turn(head.next_seq, 2)?;
    backend.append(&id, None, after(&head), &second).await?;
    require_log(backend, &id, &[&first, &second]).await
}

/// Every event comes back byte by byte, whatever the batches were.
pub async fn what_is_read_is_what_was_appended(backend: &impl Backend) -> Verdict {
    let mut stored = vec![sample::turn(0, 1)?];
    let (id, mut head) = create(backend, "bytes", &sample::turn(0, 1)?).await?;
    for number in 2..30 {
        let mut batch = sample::turn(head.next_seq, number)?;
        if number % 3 == 0 {
            batch = sample::Script::from(head.next_seq).deltas(number, number % 7 + 1, "x\\t\u{e9}")?.batch()?;
        }
        head = backend.append(&id, None, after(&head), &batch).await?;
        stored.push(batch);
    }
    require_log(backend, &id, &stored.iter().collect::<Vec<_>>()).await
}

/// The head that an append returns, [`Backend::head`] and [`Backend::open`] agree, and the last batch is named rightly if it is.
pub async fn the_head_follows_every_append(backend: &impl Backend) -> Verdict {
    let mut batch = sample::turn(0, 1)?;
    let (id, mut head) = create(backend, "head", &batch).await?;
    for number in 2..6 {
        let read = backend.head(&id).await?;
        let opened = backend.open(&id).await?.head;
        require(read == head && opened == head, || {
            format!("append returned {head:?}, head() {read:?} and open() {opened:?}")
        })?;
        require(head.epoch >= 1, || "the epoch of a stored session is at least 1".into())?;
        require(head.next_seq == batch.next_seq(), || {
            format!("next seq {} after {}", head.next_seq, batch.next_seq())
        })?;
        let mark = BatchMark { first_seq: batch.first_seq(), checksum: batch.checksum() };
        require(head.last_batch.is_none_or(|last| last == mark), || {
            format!("the last batch is {mark:?}, the head says {:?}", head.last_batch)
        })?;
        batch = sample::turn(head.next_seq, number)?;
        head = backend.append(&id, None, after(&head), &batch).await?;
    }
    Ok(())
}

/// Of two appends that expect the same, exactly one lands, whole.
pub async fn two_racing_appends_leave_one_batch(backend: &impl Backend) -> Verdict {
    let first = sample::turn(0, 1)?;
    let (id, mut head) = create(backend, "race", &first).await?;
    let mut expected: Vec<_> = first.events().collect();
    for number in 0..10 {
        let (a, b) = (sample::turn(head.next_seq, 100 + number)?, sample::turn(head.next_seq, 200 + number)?);
        let results =
            both(backend.append(&id, None, after(&head), &a), backend.append(&id, None, after(&head), &b)).await;
        let winner = match results {
            (Ok(next), Err(AppendError::Conflict { .. })) => (a, next),
            (Err(AppendError::Conflict { .. }), Ok(next)) => (b, next),
            other => return Err(Violation { detail: format!("two racing appends: {other:?}") }),
        };
        expected.extend(winner.0.events());
        head = winner.1;
    }
    super::require_events(&whole_log(backend, &id).await?, &expected)
}

/// Repair closers are appended under the same condition as any batch.
pub async fn repair_is_an_append(backend: &impl Backend) -> Verdict {
    let first = sample::turn(0, 1)?;
    let (id, head) = create(backend, "repair", &first).await?;
    let closers = sample::turn(head.next_seq, 2)?;
    let stale = Expected { epoch: head.epoch + 1, ..after(&head) };
    let result = backend.repair(&id, stale, &closers).await;
    require(matches!(result, Err(AppendError::Conflict { .. })), || format!("repair with a wrong epoch: {result:?}"))?;
    require_log(backend, &id, &[&first]).await?;
    let repaired = backend.repair(&id, after(&head), &closers).await?;
    require(repaired.next_seq == closers.next_seq(), || format!("next seq {} after the repair", repaired.next_seq))?;
    let result = backend.repair(&id, after(&head), &closers).await;
    require(matches!(result, Err(AppendError::Conflict { .. })), || format!("the same repair again: {result:?}"))?;
    require_log(backend, &id, &[&first, &closers]).await
}
