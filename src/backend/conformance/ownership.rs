//! Laws of who may write.

use super::{Verdict, Violation, after, create, require, require_kind, require_log, sample, session};
use crate::backend::{AppendError, Backend, ErrorKind, Expected};

/// Whoever creates a session is its writer, with the epoch that the creation returned.
pub async fn creation_gives_ownership(backend: &impl Backend) -> Verdict {
    let first = sample::turn(0, 1)?;
    let (id, head) = create(backend, "created", &first).await?;
    let second = sample::turn(head.next_seq, 2)?;
    let head = backend.append(&id, None, after(&head), &second).await?;
    let third = sample::turn(head.next_seq, 3)?;
    backend.append(&id, None, after(&head), &third).await?;
    require_log(backend, &id, &[&first, &second, &third]).await
}

/// Taking over raises the epoch, keeps the log, and lets the new writer append.
pub async fn take_over_raises_the_epoch(backend: &impl Backend) -> Verdict {
    let (missing, _) = session("nobody")?;
    require_kind("take_over of nothing", backend.take_over(&missing).await, &[ErrorKind::NotFound])?;
    let first = sample::turn(0, 1)?;
    let (id, mut head) = create(backend, "taken", &first).await?;
    let mut log = vec![first];
    for number in 2..5 {
        backend.release(&id, head.epoch).await?;
        let taken = backend.take_over(&id).await?;
        require(taken.head.epoch > head.epoch, || {
            format!("the epoch went from {} to {}", head.epoch, taken.head.epoch)
        })?;
        require(taken.head.next_seq == head.next_seq, || format!("taking over moved the end to {:?}", taken.head))?;
        require(taken.torn.is_none(), || format!("a log that nobody tore is torn: {:?}", taken.torn))?;
        require_log(backend, &id, &log.iter().collect::<Vec<_>>()).await?;
        let batch = sample::turn(head.next_seq, number)?;
        head = backend.append(&id, None, after(&taken.head), &batch).await?;
        log.push(batch);
    }
    require_log(backend, &id, &log.iter().collect::<Vec<_>>()).await
}

/// A writer that has been superseded never appends again, even where its seq still fits. A backend may instead refuse the
/// second writer while the first is alive; then the first goes on undisturbed.
pub async fn a_stale_epoch_never_appends(backend: &impl Backend) -> Verdict {
    let first = sample::turn(0, 1)?;
    let (id, old) = create(backend, "stale", &first).await?;
    let new = match backend.take_over(&id).await {
        Ok(taken) => taken.head,
        Err(error) if error.kind == ErrorKind::Busy => {
            let second = sample::turn(old.next_seq, 2)?;
            let head = backend.append(&id, None, after(&old), &second).await?;
            require_log(backend, &id, &[&first, &second]).await?;
            backend.release(&id, head.epoch).await?;
            backend.take_over(&id).await?.head
        }
        Err(error) => return Err(error.into()),
    };
    let stored = backend.head(&id).await?.next_seq;
    let stale = Expected { epoch: old.epoch, next_seq: stored };
    let batch = sample::turn(stored, 3)?;
    for what in ["append", "repair"] {
        let result = match what {
            "append" => backend.append(&id, None, stale, &batch).await,
            _ => backend.repair(&id, stale, &batch).await,
        };
        match result {
            Err(AppendError::Conflict { found, .. }) => {
                require(found == after(&new), || format!("the conflict names {found:?}, stored is {new:?}"))?;
            }
            Err(AppendError::Failed(error)) if error.kind == ErrorKind::LostOwnership => {}
            other => return Err(Violation { detail: format!("{what} with a stale epoch: {other:?}") }),
        }
    }
    let head = backend.append(&id, None, after(&new), &batch).await?;
    require(head.next_seq == batch.next_seq(), || "the new writer's append did not land".into())
}

/// A writer that gave the session back cannot append until it takes the session over again.
pub async fn release_then_append_fails(backend: &impl Backend) -> Verdict {
    let first = sample::turn(0, 1)?;
    let (id, head) = create(backend, "released", &first).await?;
    backend.release(&id, head.epoch).await?;
    let second = sample::turn(head.next_seq, 2)?;
    let result = backend.append(&id, None, after(&head), &second).await;
    let refused = matches!(&result, Err(AppendError::Conflict { .. }))
        || matches!(&result, Err(AppendError::Failed(error)) if error.kind == ErrorKind::LostOwnership);
    require(refused, || format!("append after release: {result:?}"))?;
    require_log(backend, &id, &[&first]).await?;
    let taken = backend.take_over(&id).await?;
    backend.append(&id, None, after(&taken.head), &second).await?;
    require_log(backend, &id, &[&first, &second]).await
}
