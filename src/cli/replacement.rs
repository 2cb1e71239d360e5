//! An output file that appears whole or not at all, whatever ends the program.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::failure::Failure;

/// A file that appears under its name whole or not at all. For the owner's eyes only, as transcripts hold secrets.
pub struct Replacement {
    inner: BufWriter<File>,
    temporary: PathBuf,
    target: PathBuf,
    finished: bool,
}

impl Replacement {
    /// Starts a file beside `target`, which takes its place in [`Replacement::finish`]. Needs a runtime: from here on a signal
    /// that ends the program removes what is half done.
    pub fn begin(target: &Path) -> Result<Self, Failure> {
        Self::open(target).map_err(|error| cannot_write(target, &error))
    }

    fn open(target: &Path) -> io::Result<Self> {
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
        // From the very first moment on.
        let interruptions = interruptions()?;
        let file = options.open(&temporary)?;
        // The umask may have taken away even the owner's rights.
        #[cfg(unix)]
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let inner = BufWriter::with_capacity(256 * 1024, file);
        for interruption in interruptions {
            let temporary = temporary.clone();
            tokio::spawn(async move {
                let status = interruption.await;
                let _ = fs::remove_file(&temporary);
                std::process::exit(status);
            });
        }
        Ok(Self { inner, temporary, target: target.to_owned(), finished: false })
    }

    /// An error that names the file.
    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::other(format!("{}: {error}", self.target.display()))
    }

    /// Makes the file durable and puts it in place.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.commit().map_err(|error| cannot_write(&self.target, &error))
    }

    fn commit(&mut self) -> io::Result<()> {
        self.inner.flush()?;
        self.inner.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.target)?;
        self.finished = true;
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let next = match error.kind() {
        io::ErrorKind::NotFound => "; its directory must be there before",
        io::ErrorKind::PermissionDenied => "; name a file in a directory that you may write to",
        // What is no error of the system's says itself what to do.
        _ if error.raw_os_error().is_none() => "",
        _ => "; see that there is space where it goes, or name another file",
    };
    Failure::failed(format!("cannot write {}: {error}{next}", path.display()))
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
