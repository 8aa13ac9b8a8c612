//! Child processes that never outlive their owner.
//!
//! A watcher process holds the reading end of a pipe from this process. When
//! the pipe closes (asked for, or because this process died in whatever way),
//! the watcher ends every component and removes the directory.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How long the watcher may take to end everything; it needs less.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How much of a log goes into an error.
const LOG_LINES: usize = 25;

/// The components of one control plane and the watcher that ends them.
#[derive(Debug)]
pub(crate) struct Processes {
    dir: PathBuf,
    watcher: Child,
    pipe: Option<ChildStdin>,
    components: Vec<Component>,
}

#[derive(Debug)]
struct Component {
    name: &'static str,
    child: Child,
    program: PathBuf,
    args: Vec<String>,
}

impl Processes {
    /// Starts the watcher for the (existing) directory `dir`, which it owns.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        for folder in ["pids", "logs"] {
            let path = dir.join(folder);
            fs::create_dir_all(&path).map_err(Error::io(format!("making {}", path.display())))?;
        }
        let mut watcher = Command::new("sh")
            .args(["-c", include_str!("watcher.sh"), "watcher"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // an interrupt from the terminal must not end it first
            .spawn()
            .map_err(Error::io("starting the watcher"))?;
        let pipe = watcher.stdin.take();
        Ok(Self {
            dir: dir.to_path_buf(),
            watcher,
            pipe,
            components: Vec::new(),
        })
    }

    /// Starts one component; both its outputs go to its log.
    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        program: &Path,
        args: &[String],
    ) -> Result<()> {
        let log = self.log_path(name);
        let out = fs::File::create(&log).map_err(Error::io(format!("making {}", log.display())))?;
        let err = out
            .try_clone()
            .map_err(Error::io(format!("opening {}", log.display())))?;
        let child = Command::new("sh")
            .args(["-c", r#"echo $$ >"$1" && shift && exec "$@""#, "start"])
            .arg(self.dir.join("pids").join(name))
            .arg(program)
            .args(args)
            .env("KWOK_WORKDIR", self.dir.join("kwok"))
            .env_remove("KUBECONFIG")
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .map_err(Error::io(format!("starting {name}")))?;
        self.components.push(Component {
            name,
            child,
            program: program.to_path_buf(),
            args: args.to_vec(),
        });
        Ok(())
    }

    /// Kills one component at once, as a crash would.
    pub(crate) fn kill(&mut self, name: &str) -> Result<()> {
        for component in self.components.iter_mut().filter(|c| c.name == name) {
            let killed = component.child.kill();
            killed.map_err(Error::io(format!("killing {name}")))?;
            let waited = component.child.wait();
            waited.map_err(Error::io(format!("waiting for the end of {name}")))?;
        }
        Ok(())
    }

    /// Starts a component that was killed again, as it was started before.
    pub(crate) fn start_again(&mut self, name: &str) -> Result<()> {
        if let Some(at) = self.components.iter().position(|c| c.name == name) {
            let old = self.components.remove(at);
            self.spawn(old.name, &old.program, &old.args)?;
        }
        Ok(())
    }

    /// Fails if any component has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        for component in &mut self.components {
            let ended = component
                .child
                .try_wait()
                .map_err(Error::io(format!("asking after {}", component.name)))?;
            if let Some(status) = ended {
                let (component, status) = (component.name, status.to_string());
                return Err(Error::Ended {
                    component,
                    status,
                    log: self.log_end(component),
                });
            }
        }
        Ok(())
    }

    /// The pids of the components, by name.
    pub(crate) fn pids(&self) -> Vec<(&'static str, u32)> {
        self.components
            .iter()
            .map(|c| (c.name, c.child.id()))
            .collect()
    }

    pub(crate) fn log_path(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{name}.log"))
    }

    /// The last lines of a component's log.
    pub(crate) fn log_end(&self, name: &str) -> String {
        let mut text = Vec::new();
        let read = fs::File::open(self.log_path(name)).and_then(|mut file| {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(16 * 1024)))?;
            file.read_to_end(&mut text)
        });
        if let Err(error) = read {
            return format!("(no log: {error})");
        }
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        drop(self.pipe.take()); // the watcher's sign to end everything
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            // Reaping lets the watcher see that they are gone.
            for component in &mut self.components {
                let _ = component.child.try_wait();
            }
            if !matches!(self.watcher.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Only reached with something alive if the watcher itself was killed.
        for component in &mut self.components {
            let _ = component.child.kill();
            let _ = component.child.wait();
        }
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
