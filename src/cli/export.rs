//! `export`: a session's events as a file for other programs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use sessionlog::backend::Backend;
use sessionlog::event::SessionId;
use sessionlog::interop::JsonlWriter;
use sessionlog::segment::SegmentBackend;

use super::args::{Export, Format};
use super::failure::Failure;
use super::output::{Output, complain};
use super::store;

pub async fn run(backend: &SegmentBackend, arguments: &Export, out: &mut Output) -> Result<(), Failure> {
    let id = store::resolve(backend, &arguments.id).await?;
    let Format::Jsonl = arguments.format;
    let path = match &arguments.output {
        Some(path) if path.as_os_str() != "-" => path,
        _ => return write(backend, &id, out).await,
    };
    let failed = |error: io::Error| cannot_write(path, &error);
    // What is half done goes when the person gives up, from the very first moment on.
    let interruptions = interruptions().map_err(failed)?;
    let mut file = Replacement::begin(path).map_err(failed)?;
    for interruption in interruptions {
        let temporary = file.temporary.clone();
        tokio::spawn(async move {
            let status = interruption.await;
            let _ = fs::remove_file(&temporary);
            std::process::exit(status);
        });
    }
    write(backend, &id, &mut file).await?;
    file.finish().map_err(failed)
}

/// The signals that end a program, watched from now on; each gives the exit status that shells expect after it.
#[cfg(unix)]
fn interruptions() -> io::Result<Vec<impl Future<Output = i32> + Send + 'static>> {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
    let watched = kinds.map(|kind| {
        signal(kind).map(|mut signal| async move {
            signal.recv().await;
            128 + kind.as_raw_value()
        })
    });
    watched.into_iter().collect()
}

#[cfg(not(unix))]
fn interruptions() -> io::Result<Vec<impl Future<Output = i32> + Send + 'static>> {
    Ok(vec![async {
        // Without a handler there is nothing to wait for.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        130
    }])
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

async fn write(backend: &SegmentBackend, id: &SessionId, out: &mut impl Write) -> Result<(), Failure> {
    // The whole log is checked first: nothing of a damaged one is written.
    let opened = backend.open(id).await?;
    if let Some(torn) = opened.torn.filter(|_| !opened.live) {
        complain(&format!(
            "sessionlog: session {id}: left out an incomplete record of {} bytes at the end; `sessionlog repair {id}` sets it aside",
            torn.bytes
        ));
    }
    let mut writer = JsonlWriter::new(out, &opened.header)?;
    store::for_each_event(backend, id, 0, |event| {
        writer.event(&event)?;
        Ok(true)
    })
    .await?;
    writer.finish()?;
    Ok(())
}

/// A file that appears under its name whole or not at all. For the owner's eyes only, as transcripts hold secrets.
struct Replacement {
    inner: BufWriter<File>,
    temporary: PathBuf,
    target: PathBuf,
    finished: bool,
}

impl Replacement {
    fn begin(target: &Path) -> io::Result<Self> {
        // A link stays one: what it points to is replaced.
        let target = &target.canonicalize().unwrap_or_else(|_| target.to_owned());
        match fs::metadata(target) {
            Ok(stat) if stat.is_dir() => return Err(io::Error::other("this is a directory; name a file in it")),
            Ok(stat) if !stat.is_file() => {
                return Err(io::Error::other("this is not a regular file; leave -o away and redirect the output"));
            }
            _ => {}
        }
        let name = target.file_name().ok_or_else(|| io::Error::other("this is not a file name"))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.part", std::process::id()));
        let temporary = target.with_file_name(hidden);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&temporary)?;
        // The umask may have taken away even the owner's rights.
        #[cfg(unix)]
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let inner = BufWriter::with_capacity(256 * 1024, file);
        Ok(Self { inner, temporary, target: target.to_owned(), finished: false })
    }

    /// An error that names the file.
    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::other(format!("{}: {error}", self.target.display()))
    }

    fn finish(mut self) -> io::Result<()> {
        self.inner.flush()?;
        self.inner.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.target)?;
        self.finished = true;
        Ok(())
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes).map_err(|error| self.named(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().map_err(|error| self.named(&error))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: the name says what it is.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
