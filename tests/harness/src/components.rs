//! The command line of each component, and the files it reads.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::certificates::{Certificates, Pair, write};
use crate::error::{Error, Result};
use crate::plane::Options;

/// Ports of one control plane, free when they were picked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    etcd: u16,
    etcd_peer: u16,
    pub(crate) apiserver: u16,
    pub(crate) kwok: u16,
}

impl Ports {
    pub(crate) fn pick() -> Result<Self> {
        // All are held at once, so that they differ from each other.
        let listeners = (0..4)
            .map(|_| TcpListener::bind("127.0.0.1:0"))
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(Error::io("picking free ports"))?;
        let mut ports = [0; 4];
        for (port, listener) in ports.iter_mut().zip(&listeners) {
            *port = listener
                .local_addr()
                .map_err(Error::io("picking free ports"))?
                .port();
        }
        let [etcd, etcd_peer, apiserver, kwok] = ports;
        Ok(Self {
            etcd,
            etcd_peer,
            apiserver,
            kwok,
        })
    }
}

/// A port that is free now.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("picking a free port"))?;
    let address = listener.local_addr().map_err(Error::io("picking a free port"))?;
    Ok(address.port())
}

/// Everything the command lines are made of.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) ports: Ports,
    pub(crate) certificates: &'a Certificates,
    pub(crate) options: &'a Options,
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

impl Setup<'_> {
    pub(crate) fn etcd(&self) -> Vec<String> {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        vec![
            flag("data-dir", self.dir.join("etcd").display()),
            flag("listen-client-urls", &client),
            flag("advertise-client-urls", client),
            flag("listen-peer-urls", &peer),
            flag("initial-advertise-peer-urls", &peer),
            flag("initial-cluster", format!("default={peer}")),
            "--unsafe-no-fsync".into(), // its data needs to survive nothing
            flag("quota-backend-bytes", 4_u64 << 30),
            flag("snapshot-count", 50_000),
            flag("log-level", "warn"),
        ]
    }

    pub(crate) fn apiserver(&self) -> Vec<String> {
        let Certificates {
            ca,
            server,
            service_accounts,
            ..
        } = self.certificates;
        let mut args = vec![
            flag(
                "etcd-servers",
                format!("http://127.0.0.1:{}", self.ports.etcd),
            ),
            flag("bind-address", "127.0.0.1"),
            flag("advertise-address", "127.0.0.1"),
            flag("secure-port", self.ports.apiserver),
            flag("endpoint-reconciler-type", "none"), // loopback is no valid endpoint
            flag("service-cluster-ip-range", "10.96.0.0/16"),
            flag("cert-dir", self.dir.display()),
            flag("tls-cert-file", server.certificate.display()),
            flag("tls-private-key-file", server.key.display()),
            flag("client-ca-file", ca.display()),
            flag("service-account-issuer", "https://kubernetes.default.svc"),
            flag(
                "service-account-key-file",
                service_accounts.certificate.display(),
            ),
            flag(
                "service-account-signing-key-file",
                service_accounts.key.display(),
            ),
            flag("authorization-mode", "RBAC"),
            // As installers set it: device plugins and collectors need it.
            flag("allow-privileged", true),
            flag("max-requests-inflight", 4_000),
            flag("max-mutating-requests-inflight", 2_000),
        ];
        if !self.options.feature_gates.is_empty() {
            args.push(flag("feature-gates", self.options.feature_gates.join(",")));
        }
        if !self.options.runtime_config.is_empty() {
            args.push(flag(
                "runtime-config",
                self.options.runtime_config.join(","),
            ));
        }
        args.extend(self.options.apiserver_args.iter().cloned());
        args
    }

    pub(crate) fn controller_manager(&self) -> Result<Vec<String>> {
        let kubeconfig = self.kubeconfig("controllers", &self.certificates.controllers)?;
        let mut args = self.kubernetes_client(&kubeconfig);
        args.extend([
            // Without it every controller is refused by RBAC.
            flag("use-service-account-credentials", true),
            flag(
                "service-account-private-key-file",
                self.certificates.service_accounts.key.display(),
            ),
            flag("root-ca-file", self.certificates.ca.display()),
            // Fake nodes send no heartbeats.
            flag("node-monitor-grace-period", "24h"),
            flag("concurrent-job-syncs", 20),
            flag("concurrent-statefulset-syncs", 20),
            flag("concurrent-namespace-syncs", 20),
            flag("concurrent-gc-syncs", 40),
        ]);
        Ok(args)
    }

    pub(crate) fn scheduler(&self) -> Result<Vec<String>> {
        let kubeconfig = self.kubeconfig("scheduler", &self.certificates.scheduler)?;
        let mut args = self.kubernetes_client(&kubeconfig);
        if let Some(url) = &self.options.scheduler_extender {
            // With a file the flags of the client and of leader election no longer count.
            let config = serde_json::json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": kubeconfig, "qps": 5_000, "burst": 5_000},
                "leaderElection": {"leaderElect": false},
                // Every node is looked at, not the first few that will do.
                "percentageOfNodesToScore": 100,
                "extenders": [{"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": true}],
            });
            let path = self.dir.join("scheduler.yaml");
            write(&path, &format!("{config:#}\n"))?; // JSON is YAML
            args.push(flag("config", path.display()));
        }
        Ok(args)
    }

    fn kubernetes_client(&self, kubeconfig: &Path) -> Vec<String> {
        let mut args = vec![
            flag("kubeconfig", kubeconfig.display()),
            flag("leader-elect", false),
            // Client-side limits would hide what a test measures.
            flag("kube-api-qps", 5_000),
            flag("kube-api-burst", 5_000),
            flag("secure-port", 0),
        ];
        if !self.options.feature_gates.is_empty() {
            args.push(flag("feature-gates", self.options.feature_gates.join(",")));
        }
        args
    }

    pub(crate) fn kwok(&self) -> Result<Vec<String>> {
        let stages = self.dir.join("stages.yaml");
        write(&stages, include_str!("stages.yaml"))?;
        Ok(vec![
            flag("kubeconfig", self.admin_kubeconfig().display()),
            flag("config", stages.display()),
            flag("manage-all-nodes", false),
            flag(
                "manage-nodes-with-annotation-selector",
                "kwok.x-k8s.io/node=fake",
            ),
            // No leases: at 1 000 nodes their renewal costs more than a scheduler.
            flag("node-lease-duration-seconds", 0),
            flag("cidr", "10.128.0.0/10"),
            flag("server-address", format!("127.0.0.1:{}", self.ports.kwok)),
        ])
    }

    /// The admin's kubeconfig, which `write_admin_kubeconfig` has written.
    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    pub(crate) fn write_admin_kubeconfig(&self) -> Result<PathBuf> {
        self.kubeconfig("admin", &self.certificates.admin)
    }

    fn kubeconfig(&self, name: &str, pair: &Pair) -> Result<PathBuf> {
        let path = self.dir.join(format!("{name}.kubeconfig"));
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "berth-test",
            "clusters": [{"name": "berth-test", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.ports.apiserver),
                "certificate-authority": self.certificates.ca,
            }}],
            "users": [{"name": name, "user": {
                "client-certificate": pair.certificate,
                "client-key": pair.key,
            }}],
            "contexts": [{"name": "berth-test", "context": {"cluster": "berth-test", "user": name}}],
        });
        write(&path, &format!("{config:#}\n"))?; // JSON is YAML
        Ok(path)
    }
}
