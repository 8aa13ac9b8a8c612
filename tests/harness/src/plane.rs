//! Start and end of a control plane.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::certificates::Certificates;
use crate::components::{Ports, Setup};
use crate::error::{Error, Result};
use crate::process::Processes;
use crate::programs::Programs;

/// What a control plane is made of.
#[derive(Debug, Clone)]
pub struct Options {
    /// Feature gates of every Kubernetes component, such as `GenericWorkload=true`.
    pub feature_gates: Vec<String>,
    /// API versions to serve besides the default ones, such as `scheduling.k8s.io/v1alpha1=true`.
    pub runtime_config: Vec<String>,
    /// More flags of kube-apiserver.
    pub apiserver_args: Vec<String>,
    /// Whether kube-scheduler runs too, for pods that name no other scheduler.
    pub scheduler: bool,
    /// URL of an extender that kube-scheduler asks (`<url>/filter`) about the nodes that passed its own rules.
    pub scheduler_extender: Option<String>,
    /// How long each component has to become ready.
    pub ready_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            feature_gates: Vec::new(),
            runtime_config: Vec::new(),
            apiserver_args: Vec::new(),
            scheduler: false,
            scheduler_extender: None,
            ready_timeout: Duration::from_secs(90),
        }
    }
}

/// A running control plane: etcd, kube-apiserver, kube-controller-manager and
/// kwok, on loopback, with a directory of its own. Dropping it ends all of
/// them; they also end when this process does, in whatever way.
#[derive(Debug)]
pub struct ControlPlane {
    processes: Processes,
    kubeconfig: PathBuf,
    url: String,
    namespaces: AtomicU32,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready. Programs that are
    /// missing are built first, which takes minutes the first time.
    pub async fn start(options: Options) -> Result<Self> {
        let mut names = vec!["etcd", "kube-apiserver", "kube-controller-manager", "kwok"];
        if options.scheduler {
            names.push("kube-scheduler");
        }
        let programs = blocking(move || Programs::ready(&names)).await?;
        let mut attempt = 1;
        loop {
            match Self::start_once(&programs, &options).await {
                // Someone else took a port between picking and using it.
                Err(Error::Ended { log, .. })
                    if attempt < 3 && log.contains("address already in use") =>
                {
                    attempt += 1
                }
                result => return result,
            }
        }
    }

    async fn start_once(programs: &Programs, options: &Options) -> Result<Self> {
        let dir = new_directory()?;
        let mut processes = Processes::new(&dir)?; // from here on removes the directory too
        let certificates = Certificates::make(&dir)?;
        let setup = Setup {
            dir: &dir,
            ports: Ports::pick()?,
            certificates: &certificates,
            options,
        };
        let kubeconfig = setup.write_admin_kubeconfig()?;
        processes.spawn("etcd", &programs.path("etcd")?, &setup.etcd())?;
        processes.spawn(
            "kube-apiserver",
            &programs.path("kube-apiserver")?,
            &setup.apiserver(),
        )?;
        let url = format!("https://127.0.0.1:{}", setup.ports.apiserver);
        let mut plane = Self {
            processes,
            kubeconfig,
            url,
            namespaces: AtomicU32::new(0),
        };

        let client = plane.client().await?;
        plane
            .ready("kube-apiserver", options, || apiserver_ready(&client))
            .await?;
        let manager = "kube-controller-manager";
        plane.processes.spawn(
            manager,
            &programs.path(manager)?,
            &setup.controller_manager()?,
        )?;
        plane
            .processes
            .spawn("kwok", &programs.path("kwok")?, &setup.kwok()?)?;
        if options.scheduler {
            plane.processes.spawn(
                "kube-scheduler",
                &programs.path("kube-scheduler")?,
                &setup.scheduler()?,
            )?;
        }
        plane
            .ready(manager, options, || default_account(&client, "default"))
            .await?;
        plane
            .ready("kwok", options, || http_ok(setup.ports.kwok, "/healthz"))
            .await?;
        Ok(plane)
    }

    /// Waits until a component says that it is ready; fails at once when any has ended.
    pub(crate) async fn ready<F>(
        &mut self,
        component: &'static str,
        options: &Options,
        mut probe: impl FnMut() -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<(), String>>,
    {
        let timeout = options.ready_timeout;
        let start = Instant::now();
        loop {
            self.processes.check()?;
            let answer = tokio::time::timeout(Duration::from_secs(5), probe()).await;
            let reason = match answer {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(reason)) => reason,
                Err(_) => "no answer within 5 s".to_owned(),
            };
            if start.elapsed() > timeout {
                return Err(Error::NotReady {
                    component,
                    timeout,
                    reason,
                    log: self.processes.log_end(component),
                });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A new client with every right. It belongs to the calling runtime, so
    /// tests that share a control plane each make their own.
    pub async fn client(&self) -> Result<Client> {
        let bad = |reason: String| Error::BadFile {
            path: self.kubeconfig.clone(),
            reason,
        };
        let file = Kubeconfig::read_from(&self.kubeconfig).map_err(|e| bad(e.to_string()))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .map_err(|e| bad(e.to_string()))?;
        Client::try_from(config).map_err(Error::api("making a client"))
    }

    /// The kubeconfig of an admin, for other processes.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// The address of the API server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The log file of a component, such as `kube-apiserver`.
    pub fn log_path(&self, component: &str) -> PathBuf {
        self.processes.log_path(component)
    }

    /// The components by name, with their process ids.
    pub fn pids(&self) -> Vec<(&'static str, u32)> {
        self.processes.pids()
    }

    /// Kills the API server, as a crash would.
    pub fn kill_apiserver(&mut self) -> Result<()> {
        self.processes.kill("kube-apiserver")
    }

    /// Starts the API server again after [`Self::kill_apiserver`], at the same
    /// address and with all its data, and waits until it is ready.
    pub async fn start_apiserver_again(&mut self) -> Result<()> {
        self.processes.start_again("kube-apiserver")?;
        let client = self.client().await?;
        let options = Options::default();
        self.ready("kube-apiserver", &options, || apiserver_ready(&client))
            .await
    }

    /// Fails, with the end of its log, if a component has ended.
    pub fn check(&mut self) -> Result<()> {
        self.processes.check()
    }

    /// Ends every component and removes the directory, without blocking the
    /// runtime as dropping does.
    pub async fn stop(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    /// Starts one more component.
    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        program: &Path,
        args: &[String],
    ) -> Result<()> {
        self.processes.spawn(name, program, args)
    }

    /// A number no other call on this control plane got.
    pub(crate) fn next_number(&self) -> u32 {
        self.namespaces.fetch_add(1, Ordering::Relaxed)
    }
}

/// The path of a program that tests use beside the control plane (`helm`, `prometheus`); it is built when it is missing.
///
/// # Errors
///
/// It can't be built.
pub async fn program(name: &'static str) -> Result<PathBuf> {
    blocking(move || Programs::ready(&[name])?.path(name)).await
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            Err(Error::Io {
                what: "background work".into(),
                source: error.into(),
            })
        })
}

fn new_directory() -> Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!(
            "berth-controlplane-{}-{number}",
            std::process::id()
        ));
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io(format!("making {}", dir.display()))(error)),
        }
    }
}

async fn apiserver_ready(client: &Client) -> Result<(), String> {
    crate::metrics::get(client, "/readyz")
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Whether the controllers have given a namespace its service account, without
/// which it takes no pods.
pub(crate) async fn default_account(client: &Client, namespace: &str) -> Result<(), String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    match accounts.get_opt("default").await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(format!("namespace {namespace} has no service account yet")),
        Err(error) => Err(error.to_string()),
    }
}

async fn http_ok(port: u16, path: &str) -> Result<(), String> {
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream
            .write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match ask.await {
        Ok(answer) if answer.split_whitespace().nth(1) == Some("200") => Ok(()),
        Ok(answer) => Err(answer.lines().next().unwrap_or("empty answer").to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
