//! How much memory and processor time: a counting allocator, and what the kernel says.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicIsize, Ordering};

use rustix::time::{ClockId, clock_gettime};

struct Counting;

/// Bytes allocated at present, by all threads.
static HELD: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: usize, freed: usize) {
    let (bytes, freed) = (bytes.cast_signed(), freed.cast_signed());
    HELD.fetch_add(bytes - freed, Ordering::Relaxed);
}

fn allocation() {
    // A thread that is going down has no counter any more, and nobody asks for it.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocation();
        count(layout.size(), 0);
        // SAFETY: as for the function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as for the function.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        allocation();
        count(size, layout.size());
        // SAFETY: as for the function.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the running thread so far, growing in place included.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Bytes that are allocated at present.
pub fn held() -> f64 {
    HELD.load(Ordering::Relaxed) as f64
}

/// The most memory that this process has had, in bytes, as the kernel counts it (`VmHWM`).
pub fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("the kernel's account of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024.0
}

/// Seconds of processor time of all threads of this process so far.
pub fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
