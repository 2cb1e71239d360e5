//! The engine as a backend: inside a tokio runtime and without any.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use segment_common::{batch, expected, header, id, lines};
use sessionlog::backend::{Backend, ErrorKind, Expected, ReadLimit};
use sessionlog::segment::{EngineOptions, SegmentBackend};

async fn work(backend: SegmentBackend) {
    let s = id("s");
    let mut head = backend.append(&s, Some(&header("s")), Expected::ABSENT, &batch(0, 4)).await.unwrap();
    for to in [9, 30, 31] {
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        head = backend.append(&s, None, expected, &batch(head.next_seq, to)).await.unwrap();
    }
    let opened = backend.open(&s).await.unwrap();
    assert_eq!(opened.head, head);
    assert_eq!(backend.head(&s).await.unwrap(), head);
    assert_eq!(backend.revision(&s).await.unwrap(), head.revision);
    let page = backend.read(&s, 0, ReadLimit::default()).await.unwrap();
    let events: Vec<_> = page.items.iter().flat_map(|item| item.events()).collect();
    assert_eq!(lines(&events), lines(&expected(31)));
    let picked = backend.read_events(&s, &[30, 0, 7]).await.unwrap();
    assert_eq!(picked.iter().map(sessionlog::event::Event::seq).collect::<Vec<_>>(), [30, 0, 7]);
    assert_eq!(backend.take_over(&s).await.unwrap_err().kind, ErrorKind::Busy);
    backend.release(&s, head.epoch).await.unwrap();
    let taken = backend.take_over(&s).await.unwrap();
    let expected = Expected { epoch: taken.head.epoch, next_seq: 31 };
    assert_eq!(backend.repair(&s, expected, &batch(31, 33)).await.unwrap().next_seq, 33);
    assert_eq!(backend.fork(&s, 10, &header("child")).await.unwrap().next_seq, 11);
    assert_eq!(backend.list(None, 10).await.unwrap().entries.len(), 2);
    assert!(backend.locate(&s).unwrap().is_dir());
    backend.release(&s, taken.head.epoch).await.unwrap();
    backend.delete(&s).await.unwrap();
    assert_eq!(backend.open(&s).await.unwrap_err().kind, ErrorKind::NotFound);
}

fn backend() -> (tempfile::TempDir, SegmentBackend) {
    let home = tempfile::tempdir().unwrap();
    let backend = SegmentBackend::with_options(
        home.path().join("store"),
        EngineOptions::new().rotate_at(600).background_sealing(false),
    )
    .unwrap();
    (home, backend)
}

#[test]
fn it_works_in_a_runtime() {
    let (_home, backend) = backend();
    tokio::runtime::Builder::new_multi_thread().build().unwrap().block_on(work(backend));
}

#[test]
fn it_works_without_one_and_never_waits_for_anything() {
    let (_home, backend) = backend();
    let mut future = pin!(work(backend));
    assert!(matches!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(())));
}

#[test]
fn an_append_whose_future_is_dropped_is_still_made() {
    let (_home, backend) = backend();
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    runtime.block_on(async {
        let s = id("s");
        {
            let events = batch(0, 4);
            let header = header("s");
            let mut append = pin!(backend.append(&s, Some(&header), Expected::ABSENT, &events));
            let _ = append.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        // The head settles what became of it.
        loop {
            match backend.head(&s).await {
                Ok(head) => {
                    assert_eq!((head.next_seq, head.last_batch.unwrap().checksum), (4, batch(0, 4).checksum()));
                    break;
                }
                Err(error) => assert_eq!(error.kind, ErrorKind::NotFound),
            }
            tokio::task::yield_now().await;
        }
    });
}
