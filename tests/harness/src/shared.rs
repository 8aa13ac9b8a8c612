//! One control plane for all tests of a test binary.

use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::plane::{ControlPlane, Options};

static SHARED: OnceLock<Result<ControlPlane, String>> = OnceLock::new();

/// The control plane shared by every test of this process, started by the
/// first that asks. It ends with the process. Each test takes a namespace of
/// its own ([`ControlPlane::namespace`]) and nodes with names of its own.
pub async fn shared() -> Result<&'static ControlPlane> {
    // The start blocks its thread, so that it depends on no test's runtime.
    let plane = tokio::task::spawn_blocking(|| SHARED.get_or_init(start)).await;
    match plane {
        Ok(Ok(plane)) => Ok(plane),
        Ok(Err(reason)) => Err(Error::Shared(reason.clone())),
        Err(error) => Err(Error::Shared(error.to_string())),
    }
}

fn start() -> Result<ControlPlane, String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime
            .block_on(ControlPlane::start(Options::default()))
            .map_err(|error| error.to_string())
    };
    // A thread of its own: a runtime must not start inside another.
    std::thread::spawn(run)
        .join()
        .unwrap_or_else(|_| Err("its thread panicked".into()))
}
