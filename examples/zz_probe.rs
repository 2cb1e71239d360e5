//! scratch
#![allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing
)]
use sessionlog::backend::{Expected, ReadLimit};
use sessionlog::event::SessionId;
use sessionlog::sample::{Cadence, LARGE_EVENTS, MEDIUM_EVENTS, Recording};
use sessionlog::segment::{Engine, SealOptions, SegmentBackend};
use sessionlog::store::{ForkAt, Store};
use std::time::Instant;
fn med(v: &mut Vec<f64>) -> String {
    v.sort_by(f64::total_cmp);
    format!("min {:.3} med {:.3} ms (n {})", v[0] * 1e3, v[v.len() / 2] * 1e3, v.len())
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let root = std::path::PathBuf::from(&a[2]);
    let n: usize = a.get(3).map_or(9, |s| s.parse().unwrap());
    let id = std::fs::read_to_string(root.with_extension("id")).unwrap_or_default();
    match a[1].as_str() {
        "make" => {
            let mut r = Recording::new(1).events(if n == 1 { LARGE_EVENTS } else { MEDIUM_EVENTS });
            if a.len() > 4 {
                r = r.compacting();
            }
            let e = Engine::open(&root).unwrap();
            let h = r.header();
            let id = h.session_id().unwrap();
            let mut x = Expected::ABSENT;
            for b in r.batches(Cadence::Step) {
                let c = (x == Expected::ABSENT).then_some(&h);
                let hd = e.append(&id, c, x, &b).unwrap();
                x = Expected { epoch: hd.epoch, next_seq: hd.next_seq };
            }
            e.release(&id, x.epoch).unwrap();
            e.seal(&id, SealOptions::new().level(3)).unwrap();
            std::fs::write(root.with_extension("id"), id.as_str()).unwrap();
        }
        "tail" => {
            let id = SessionId::new(&id).unwrap();
            let e = Engine::open(&root).unwrap();
            let (mut h, mut t) = (vec![], vec![]);
            for k in 0..n {
                let s = Instant::now();
                let end = e.head(&id).unwrap().next_seq;
                let d = s.elapsed().as_secs_f64();
                let s = Instant::now();
                let p = e.read(&id, end - 100, ReadLimit::default()).unwrap();
                let c = p.items.iter().flat_map(|i| i.events()).map(std::hint::black_box).count();
                assert_eq!(c, 100);
                let r = s.elapsed().as_secs_f64();
                if k == 0 {
                    println!("first: head {:.3} read {:.3} ms", d * 1e3, r * 1e3);
                } else {
                    h.push(d);
                    t.push(r);
                }
            }
            if n > 1 {
                println!("again: head {}  read {}", med(&mut h), med(&mut t));
            }
        }
        "fork" => tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let store = Store::open(SegmentBackend::open(&root).unwrap()).unwrap();
            let s = Instant::now();
            let c = store.fork(id.as_str(), ForkAt::LastTurn, "forked").await.unwrap();
            println!("fork {:.3}", s.elapsed().as_secs_f64() * 1e3);
            c.close().await.unwrap();
            store.delete("forked").await.unwrap();
            store.close().await.unwrap();
        }),
        "inspect" => tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let store = Store::open(SegmentBackend::open(&root).unwrap()).unwrap();
            let s = Instant::now();
            let c = store.inspect(id.as_str()).await.unwrap();
            println!("inspect {:.3} messages {}", s.elapsed().as_secs_f64() * 1e3, c.session().messages().len());
        }),
        _ => panic!(),
    }
}
