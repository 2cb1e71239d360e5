//! Files in memory that lose what was not synced and fail when told to.

mod fault;
mod image;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{Access, Directory, File, FileKind, Files, Identity, Lock, Stat, wrong_type};
use crate::segment::random::SplitMix;
use image::{Change, DirectoryNode, FileNode, Naming, Odds, change_time, settle, write_into};

pub use fault::{Fault, FaultKind, Operation};

/// Calls that the trace keeps.
const TRACED_CALLS: usize = 120;

/// A file system in memory with separate live and durable states, seeded and reproducible.
///
/// Cloning gives another handle to the same files: two engines over clones are two processes over one disk.
///
/// The model: each file has the bytes that a reader sees, the bytes that are on disk, and the writes and length changes since
/// the last sync; a directory likewise with its names. [`SimulatedFiles::crash`] keeps a random subset of what was not synced,
/// sector by sector and name by name, from nothing at all to everything, and forgets every lock and open handle.
///
/// The last calls are kept: [`SimulatedFiles::trace`] shows them, and [`SimulatedFiles::tell_on_panic`] prints them with the seed
/// when a test fails.
#[derive(Debug, Clone)]
pub struct SimulatedFiles {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone)]
struct State {
    seed: u64,
    inodes: HashMap<u64, Inode>,
    next_number: u64,
    /// Raised by a crash; handles of an earlier one are dead.
    generation: u64,
    random: SplitMix,
    counts: BTreeMap<Operation, u64>,
    faults: Vec<(Fault, u64)>,
    fired: BTreeMap<(Operation, FaultKind), u64>,
    off: bool,
    trace: VecDeque<Traced>,
}

/// A call as the trace keeps it.
#[derive(Debug, Clone)]
struct Traced {
    number: u64,
    operation: Operation,
    path: Arc<Path>,
    /// What it met, if it was not left alone.
    met: Option<FaultKind>,
}

#[derive(Debug, Clone)]
enum Inode {
    File(FileNode),
    Directory(DirectoryNode),
}

fn has_partial_effect(operation: Operation) -> bool {
    use Operation::{SyncAll, SyncData, SyncDirectory, WriteAt};
    matches!(operation, WriteAt | SyncData | SyncAll | SyncDirectory)
}

/// The result of a call that did its work, as its caller gets to hear it.
fn answer<T>(met: Option<FaultKind>, done: T) -> io::Result<T> {
    match met {
        Some(FaultKind::Late(number)) => Err(errno(number)),
        _ => Ok(done),
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl State {
    fn new_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Counts the call and says what it meets, if it is not left alone.
    fn count(&mut self, operation: Operation, path: &Arc<Path>) -> io::Result<Option<FaultKind>> {
        if self.off {
            return Err(errno(libc::EIO));
        }
        *self.counts.entry(operation).or_default() += 1;
        let mut met = None;
        for (fault, seen) in &mut self.faults {
            if fault.operation.is_none_or(|wanted| wanted == operation) {
                *seen += 1;
                if *seen == fault.call || (fault.lasting && *seen > fault.call) {
                    met = met.or(Some(fault.kind));
                }
            }
        }
        if let Some(kind) = met.filter(|kind| kind.concerns(operation)) {
            *self.fired.entry((operation, kind)).or_default() += 1;
        }
        if self.trace.len() == TRACED_CALLS {
            self.trace.pop_front();
        }
        let number = self.counts.values().sum();
        self.trace.push_back(Traced { number, operation, path: Arc::clone(path), met });
        match met {
            Some(FaultKind::PowerOff) => {
                self.off = true;
                Err(errno(libc::EIO))
            }
            // Writes and syncs fail after a partial effect; their callers see to it.
            Some(FaultKind::Errno(number)) if !has_partial_effect(operation) => Err(errno(number)),
            other => Ok(other),
        }
    }

    fn number_of(&self, path: &Path) -> io::Result<u64> {
        self.number_below(ROOT, path)
    }

    fn number_below(&self, directory: u64, path: &Path) -> io::Result<u64> {
        let mut number = directory;
        for component in path.components() {
            match component {
                Component::RootDir => number = ROOT,
                Component::Normal(name) => {
                    let name = name.to_str().ok_or_else(|| errno(libc::ENOENT))?;
                    let directory = self.directory(number)?;
                    number = *directory.live.get(name).ok_or_else(|| errno(libc::ENOENT))?;
                }
                _ => return Err(errno(libc::EINVAL)),
            }
        }
        Ok(number)
    }

    fn directory(&self, number: u64) -> io::Result<&DirectoryNode> {
        match self.inodes.get(&number) {
            Some(Inode::Directory(directory)) => Ok(directory),
            Some(Inode::File(_)) => Err(errno(libc::ENOTDIR)),
            None => Err(errno(libc::ENOENT)),
        }
    }

    fn directory_mut(&mut self, number: u64) -> io::Result<&mut DirectoryNode> {
        match self.inodes.get_mut(&number) {
            Some(Inode::Directory(directory)) => Ok(directory),
            Some(Inode::File(_)) => Err(errno(libc::ENOTDIR)),
            None => Err(errno(libc::ENOENT)),
        }
    }

    fn place(&self, path: &Path) -> io::Result<(u64, String)> {
        let parent = self.number_of(path.parent().ok_or_else(|| errno(libc::EINVAL))?)?;
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| errno(libc::EINVAL))?;
        Ok((parent, name.to_owned()))
    }

    fn change_names(&mut self, directory: u64, naming: Naming) -> io::Result<()> {
        let node = self.directory_mut(directory)?;
        naming.apply(&mut node.live);
        node.changes += 1;
        node.pending.push(naming);
        Ok(())
    }

    fn stat(&self, number: u64) -> io::Result<Stat> {
        let (kind, length, mode, changed) = match self.inodes.get(&number) {
            Some(Inode::File(file)) => (FileKind::File, file.live.len() as u64, 0o600, change_time([&file.live[..]])),
            Some(Inode::Directory(directory)) => (FileKind::Directory, 0, 0o700, directory.change_time()),
            None => return Err(errno(libc::ENOENT)),
        };
        let links = self.links(number);
        Ok(Stat { kind, identity: Identity { device: 1, inode: number }, length, links, mode, changed })
    }

    /// How many names lead to an inode.
    fn links(&self, number: u64) -> u64 {
        let directories = self.inodes.values().filter_map(|inode| match inode {
            Inode::Directory(directory) => Some(directory),
            Inode::File(_) => None,
        });
        directories.flat_map(|directory| directory.live.values()).filter(|named| **named == number).count() as u64
    }

    fn crash(&mut self) {
        let mut random = SplitMix::new(self.random.next());
        let mut numbers: Vec<u64> = self.inodes.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            match self.inodes.get_mut(&number) {
                Some(Inode::File(file)) => {
                    settle(&mut file.durable, &mut file.pending, &mut random);
                    file.live.clone_from(&file.durable);
                    file.locks.clear();
                }
                Some(Inode::Directory(directory)) => {
                    let odds = Odds::pick(&mut random);
                    for naming in std::mem::take(&mut directory.pending) {
                        if odds.keep(&mut random) {
                            naming.apply(&mut directory.durable);
                        }
                    }
                    if directory.live != directory.durable {
                        directory.live.clone_from(&directory.durable);
                        directory.changes += 1;
                    }
                }
                None => {}
            }
        }
        self.generation += 1;
        self.off = false;
        self.faults.clear();
        self.random = random;
    }
}

const ROOT: u64 = 1;

impl SimulatedFiles {
    /// An empty file system with the directory `/` alone. The seed decides what crashes and partial failures keep.
    pub fn new(seed: u64) -> Self {
        let state = State {
            seed,
            inodes: HashMap::from([(ROOT, Inode::Directory(DirectoryNode::default()))]),
            next_number: ROOT,
            generation: 0,
            random: SplitMix::new(seed),
            counts: BTreeMap::new(),
            faults: Vec::new(),
            fired: BTreeMap::new(),
            off: false,
            trace: VecDeque::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Another file system that is as this one is now, on which everything random follows from another seed. It has none of the
    /// open handles, and the machine under it runs well.
    pub fn copy(&self, seed: u64) -> Self {
        let mut state = self.state().clone();
        state.seed = seed;
        state.random = SplitMix::new(seed);
        state.faults.clear();
        state.off = false;
        // Handles number themselves from the same counter, so those of the original must not be taken for the copy's.
        state.generation += 1;
        for inode in state.inodes.values_mut() {
            if let Inode::File(file) = inode {
                file.locks.clear();
            }
        }
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The last calls, one a line: number, operation, path, and what the call met.
    pub fn trace(&self) -> String {
        let state = self.state();
        let mut out = format!("the last {} of {} calls:\n", state.trace.len(), state.counts.values().sum::<u64>());
        for Traced { number, operation, path, met } in &state.trace {
            let _ = write!(out, "{number:>6} {operation:?} {}", path.display());
            let _ = match met {
                Some(kind) => writeln!(out, " -> {kind:?}"),
                None => writeln!(out),
            };
        }
        out
    }

    /// Prints the seed and the trace to standard error if the thread panics while what this returns is alive.
    pub fn tell_on_panic(&self) -> TellOnPanic {
        TellOnPanic { files: self.clone() }
    }

    /// Counts a call, sits its slowness out, and gives what else it meets.
    fn enter(&self, operation: Operation, path: &Arc<Path>) -> io::Result<(MutexGuard<'_, State>, Option<FaultKind>)> {
        let mut state = self.state();
        let met = state.count(operation, path)?;
        if let Some(FaultKind::Slow(time)) = met {
            drop(state);
            thread::sleep(time);
            state = self.state();
            if state.off {
                return Err(errno(libc::EIO));
            }
        }
        Ok((state, met))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a failure; several may be planned.
    pub fn fail(&self, fault: Fault) {
        self.state().faults.push((fault, 0));
    }

    /// Takes all planned failures back.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.off = false;
    }

    /// The machine loses power and starts again: of everything not synced a random subset survives. Open handles are dead,
    /// locks are gone, planned failures are forgotten.
    pub fn crash(&self) {
        self.state().crash();
    }

    /// Calls made so far.
    pub fn calls(&self) -> u64 {
        self.state().counts.values().sum()
    }

    /// Calls of one operation made so far.
    pub fn calls_of(&self, operation: Operation) -> u64 {
        self.state().counts.get(&operation).copied().unwrap_or_default()
    }

    /// How often each planned failure met a call that it has an effect on, here and on what this is a copy of.
    pub fn fired(&self) -> BTreeMap<(Operation, FaultKind), u64> {
        self.state().fired.clone()
    }

    /// The files on which somebody holds a lock, by a name that leads to each.
    pub fn locked(&self) -> Vec<PathBuf> {
        let state = self.state();
        let mut found = Vec::new();
        let mut directories = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, number)) = directories.pop() {
            let Ok(directory) = state.directory(number) else { continue };
            for (name, number) in &directory.live {
                match state.inodes.get(number) {
                    Some(Inode::File(file)) if !file.locks.is_empty() => found.push(path.join(name)),
                    Some(Inode::Directory(_)) => directories.push((path.join(name), *number)),
                    _ => {}
                }
            }
        }
        found
    }

    /// A file's bytes as a reader sees them, without counting as a call.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        match state.inodes.get(&state.number_of(path).ok()?)? {
            Inode::File(file) => Some(file.live.clone()),
            Inode::Directory(_) => None,
        }
    }

    /// Puts a file's bytes in place, durably, behind the engine's back and without counting as a call. The parent exists.
    pub fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let number = if let Ok(number) = state.number_of(path) {
            number
        } else {
            let (parent, name) = state.place(path)?;
            let number = state.new_number();
            state.inodes.insert(number, Inode::File(FileNode::default()));
            let directory = state.directory_mut(parent)?;
            directory.live.insert(name.clone(), number);
            directory.changes += 1;
            directory.durable.insert(name, number);
            number
        };
        match state.inodes.get_mut(&number) {
            Some(Inode::File(file)) => {
                file.live = bytes.to_vec();
                file.durable = bytes.to_vec();
                file.pending.clear();
                Ok(())
            }
            _ => Err(errno(libc::EISDIR)),
        }
    }
}

impl Files for SimulatedFiles {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        let path: Arc<Path> = path.into();
        let (mut state, met) = self.enter(Operation::Open, &path)?;
        let path = &*path;
        let number = match (state.number_of(path), access) {
            (Ok(_), Access::CreateNew) => return Err(errno(libc::EEXIST)),
            (Ok(number), _) => number,
            (Err(error), Access::CreateNew) if error.raw_os_error() == Some(libc::ENOENT) => {
                let (parent, name) = state.place(path)?;
                state.directory(parent)?;
                let number = state.new_number();
                state.inodes.insert(number, Inode::File(FileNode::default()));
                state.change_names(parent, Naming::Set(name, number))?;
                number
            }
            (Err(error), _) => return Err(error),
        };
        let handle = state.new_number();
        let generation = state.generation;
        match state.inodes.get(&number) {
            Some(Inode::File(_)) => {}
            _ => return Err(wrong_type()),
        }
        let writable = access != Access::Read;
        drop(state);
        let file = SimulatedFile { files: self.clone(), path: path.into(), number, handle, generation, writable };
        answer(met, Box::new(file))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let (mut state, met) = self.enter(Operation::CreateDirectory, &path.into())?;
        if state.number_of(path).is_ok() {
            return Err(errno(libc::EEXIST));
        }
        let (parent, name) = state.place(path)?;
        state.directory(parent)?;
        let number = state.new_number();
        state.inodes.insert(number, Inode::Directory(DirectoryNode::default()));
        state.change_names(parent, Naming::Directory(name, number))?;
        answer(met, ())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut state, met) = self.enter(Operation::Rename, &from.into())?;
        let number = state.number_of(from)?;
        let ((old_parent, old), (new_parent, new)) = (state.place(from)?, state.place(to)?);
        if let Ok(target) = state.number_of(to) {
            match (state.inodes.get(&number), state.inodes.get(&target)) {
                (Some(Inode::File(_)), Some(Inode::Directory(_))) => return Err(errno(libc::EISDIR)),
                (Some(Inode::Directory(_)), Some(Inode::File(_))) => return Err(errno(libc::ENOTDIR)),
                (_, Some(Inode::Directory(directory))) if !directory.live.is_empty() => {
                    return Err(errno(libc::ENOTEMPTY));
                }
                _ => {}
            }
        }
        if old_parent == new_parent {
            let is_directory = matches!(state.inodes.get(&number), Some(Inode::Directory(_)));
            let naming = if is_directory { Naming::Directory(new, number) } else { Naming::Rename(old, new, number) };
            state.change_names(old_parent, naming)?;
        } else {
            state.change_names(old_parent, Naming::Remove(old))?;
            state.change_names(new_parent, Naming::Set(new, number))?;
        }
        answer(met, ())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut state, met) = self.enter(Operation::Link, &from.into())?;
        let number = state.number_of(from)?;
        if !matches!(state.inodes.get(&number), Some(Inode::File(_))) {
            return Err(errno(libc::EPERM));
        }
        if state.number_of(to).is_ok() {
            return Err(errno(libc::EEXIST));
        }
        let (parent, name) = state.place(to)?;
        state.change_names(parent, Naming::Set(name, number))?;
        answer(met, ())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (mut state, met) = self.enter(Operation::RemoveFile, &path.into())?;
        let number = state.number_of(path)?;
        if matches!(state.inodes.get(&number), Some(Inode::Directory(_))) {
            return Err(errno(libc::EISDIR));
        }
        let (parent, name) = state.place(path)?;
        state.change_names(parent, Naming::Remove(name))?;
        answer(met, ())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let (mut state, met) = self.enter(Operation::RemoveDirectory, &path.into())?;
        let number = state.number_of(path)?;
        if !state.directory(number)?.live.is_empty() {
            return Err(errno(libc::ENOTEMPTY));
        }
        let (parent, name) = state.place(path)?;
        state.change_names(parent, Naming::Remove(name))?;
        answer(met, ())
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        let (state, met) = self.enter(Operation::ReadDirectory, &path.into())?;
        let number = state.number_of(path)?;
        answer(met, state.directory(number)?.live.keys().cloned().collect())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let (mut state, met) = self.enter(Operation::SyncDirectory, &path.into())?;
        let number = state.number_of(path)?;
        let State { inodes, random, .. } = &mut *state;
        let Some(Inode::Directory(directory)) = inodes.get_mut(&number) else { return Err(errno(libc::ENOTDIR)) };
        let failure = if let Some(FaultKind::Errno(number)) = met { Some(errno(number)) } else { None };
        let odds = if failure.is_some() { Odds::pick(random) } else { Odds(8) };
        for naming in std::mem::take(&mut directory.pending) {
            if odds.keep(random) {
                naming.apply(&mut directory.durable);
            }
            if failure.is_some() {
                // Whether it has reached the disk or not, the next sync makes sure of it.
                directory.pending.push(naming);
            }
        }
        failure.map_or_else(|| answer(met, ()), Err)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let (state, met) = self.enter(Operation::Stat, &path.into())?;
        let stat = state.number_of(path).and_then(|number| state.stat(number))?;
        answer(met, stat)
    }

    fn open_directory(&self, path: &Path) -> io::Result<Option<Box<dyn Directory>>> {
        let path: Arc<Path> = path.into();
        let (state, met) = self.enter(Operation::Open, &path)?;
        let number = state.number_of(&path)?;
        state.directory(number)?;
        let generation = state.generation;
        drop(state);
        answer(met, Some(Box::new(SimulatedDirectory { files: self.clone(), path, number, generation })))
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let (state, met) = self.enter(Operation::Resolve, &path.into())?;
        state.number_of(path)?;
        answer(met, path.to_owned())
    }
}

#[derive(Debug)]
struct SimulatedDirectory {
    files: SimulatedFiles,
    path: Arc<Path>,
    number: u64,
    generation: u64,
}

impl Directory for SimulatedDirectory {
    fn stat(&self, below: &str) -> io::Result<Stat> {
        let (state, met) = self.files.enter(Operation::Stat, &self.path.join(below).into())?;
        if state.generation != self.generation {
            return Err(errno(libc::EBADF));
        }
        let number = state.number_below(self.number, Path::new(below))?;
        answer(met, state.stat(number)?)
    }
}

#[derive(Debug)]
struct SimulatedFile {
    files: SimulatedFiles,
    path: Arc<Path>,
    number: u64,
    handle: u64,
    generation: u64,
    writable: bool,
}

impl SimulatedFile {
    /// Counts the call and works on the file, unless the handle has not survived a crash.
    fn with<T>(
        &self,
        operation: Operation,
        work: impl FnOnce(&mut FileNode, Option<FaultKind>, &mut SplitMix) -> io::Result<T>,
    ) -> io::Result<T> {
        let (mut state, met) = self.files.enter(operation, &self.path)?;
        let changes = !matches!(operation, Operation::ReadAt | Operation::Stat | Operation::TryLock);
        if state.generation != self.generation || (changes && !self.writable) {
            return Err(errno(libc::EBADF));
        }
        let State { inodes, random, .. } = &mut *state;
        match inodes.get_mut(&self.number) {
            Some(Inode::File(file)) => work(file, met, random).and_then(|done| answer(met, done)),
            _ => Err(errno(libc::EBADF)),
        }
    }

    fn sync(&self, operation: Operation) -> io::Result<()> {
        self.with(operation, |file, fault, random| {
            if let Some(FaultKind::Errno(number)) = fault {
                settle(&mut file.durable, &mut file.pending, random);
                return Err(errno(number));
            }
            for change in std::mem::take(&mut file.pending) {
                match change {
                    Change::Write(offset, bytes) => write_into(&mut file.durable, offset, &bytes),
                    Change::Length(length) => file.durable.resize(length, 0),
                }
            }
            Ok(())
        })
    }
}

impl File for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(Operation::ReadAt, |file, fault, _| {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(file.live.len());
            let mut count = buffer.len().min(file.live.len() - from);
            if fault == Some(FaultKind::ShortRead) && count > 1 {
                count /= 2;
            }
            if let (Some(target), Some(source)) = (buffer.get_mut(..count), file.live.get(from..from + count)) {
                target.copy_from_slice(source);
            }
            Ok(count)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.with(Operation::WriteAt, |file, fault, random| {
            let offset = usize::try_from(offset).map_err(|_| errno(libc::EFBIG))?;
            let taken = match fault {
                Some(FaultKind::ShortWrite) => bytes.len().div_ceil(2),
                Some(FaultKind::Errno(_)) => usize::try_from(random.below(bytes.len() as u64 + 1)).unwrap_or(0),
                _ => bytes.len(),
            };
            let part = bytes.get(..taken).unwrap_or_default();
            write_into(&mut file.live, offset, part);
            file.pending.push(Change::Write(offset, part.to_vec()));
            match fault {
                Some(FaultKind::Errno(number)) => Err(errno(number)),
                _ => Ok(taken),
            }
        })
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.with(Operation::Truncate, |file, _, _| {
            let length = usize::try_from(length).map_err(|_| errno(libc::EFBIG))?;
            file.live.resize(length, 0);
            file.pending.push(Change::Length(length));
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(Operation::SyncData)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(Operation::SyncAll)
    }

    fn stat(&self) -> io::Result<Stat> {
        let (length, changed) =
            self.with(Operation::Stat, |file, _, _| Ok((file.live.len() as u64, change_time([&file.live[..]]))))?;
        let identity = Identity { device: 1, inode: self.number };
        let links = self.files.state().links(self.number);
        Ok(Stat { kind: FileKind::File, identity, length, links, mode: 0o600, changed })
    }

    fn try_lock(&self, lock: Lock) -> io::Result<bool> {
        let handle = self.handle;
        self.with(Operation::TryLock, |file, _, _| {
            let excluded = file
                .locks
                .iter()
                .any(|(holder, held)| *holder != handle && (lock == Lock::Exclusive || *held == Lock::Exclusive));
            if !excluded {
                file.locks.retain(|(holder, _)| *holder != handle);
                file.locks.push((handle, lock));
            }
            Ok(!excluded)
        })
    }
}

/// See [`SimulatedFiles::tell_on_panic`].
#[derive(Debug)]
pub struct TellOnPanic {
    files: SimulatedFiles,
}

impl Drop for TellOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let seed = self.files.state().seed;
            eprintln!("simulated files of seed {seed}; {}", self.files.trace());
        }
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut state = self.files.state();
        if state.generation != self.generation {
            return;
        }
        if let Some(Inode::File(file)) = state.inodes.get_mut(&self.number) {
            file.locks.retain(|(holder, _)| *holder != self.handle);
        }
    }
}
