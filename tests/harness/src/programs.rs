//! Where the programs of the control plane are; builds those that are missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// The repository's root, seen from this package.
pub(crate) fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The directories that programs are taken from.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    built: PathBuf,
    /// `KUBEBUILDER_ASSETS`: etcd and kube-apiserver given by the caller.
    given: Option<PathBuf>,
}

impl Programs {
    /// Finds `names`, building those that are neither given nor built yet.
    pub(crate) fn ready(names: &[&'static str]) -> Result<Self> {
        let script = repository().join("tests/controlplane/build.sh");
        let output = Command::new(&script)
            .args(names)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(Error::io(format!("running {}", script.display())))?;
        if !output.status.success() {
            return Err(Error::Build {
                script,
                status: output.status.to_string(),
            });
        }
        let built = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let given = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let programs = Self { built, given };
        for name in names {
            programs.path(name)?;
        }
        Ok(programs)
    }

    /// The directory with the CRDs of an operator.
    pub(crate) fn crds(&self, operator: &str) -> PathBuf {
        self.built.join(format!("{operator}-crds"))
    }

    /// The directory with the configuration of an operator's webhooks.
    pub(crate) fn webhooks(&self, operator: &str) -> PathBuf {
        self.built.join(format!("{operator}-webhooks"))
    }

    /// The path of one program.
    pub(crate) fn path(&self, program: &'static str) -> Result<PathBuf> {
        if let ("etcd" | "kube-apiserver", Some(given)) = (program, &self.given) {
            let path = given.join(program);
            if path.is_file() {
                return Ok(path);
            }
        }
        let path = self.built.join(program);
        if path.is_file() {
            return Ok(path);
        }
        Err(Error::MissingProgram {
            program,
            dir: self.built.clone(),
        })
    }
}
