//! Asks a running scheduler over its API, with the token that kubectl would use. What can't be asked is an error: no other
//! source is taken instead.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use axum::http::{Request, Uri};
use clap::Args;
use kube::config::{AuthInfo, Config};
use serde_json::Value;

use super::connect::Connection;

/// Longer than the scheduler itself takes at the most.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Which scheduler is asked.
#[derive(Clone, Debug, Args)]
pub struct Remote {
    /// Ask the running scheduler at this address (`berth run --api-address`): http://127.0.0.1:8081 or https://... where
    /// something in front of it speaks TLS. The answer holds what you may see in the cluster.
    #[arg(long, value_name = "URL", env = "BERTH_SCHEDULER")]
    pub scheduler: Option<Uri>,
    /// A file with the token to ask it with; without it the kubeconfig's, or the service account's.
    #[arg(long, value_name = "FILE", env = "BERTH_TOKEN_FILE", requires = "scheduler")]
    token_file: Option<PathBuf>,
}

/// True for an address that can't leave this machine.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The address, once it is one that a token may be sent to.
fn checked(address: &Uri) -> Result<&Uri> {
    let host = address.host().unwrap_or_default();
    if !matches!(address.path(), "" | "/") || address.query().is_some() {
        bail!("--scheduler {address}: allowed is scheme, host and port alone");
    }
    match address.scheme_str() {
        Some("https") => Ok(address),
        Some("http") if is_loopback(host) => Ok(address),
        Some("http") => bail!(
            "--scheduler {address}: a token would go there in the clear. Allowed is https, or http on loopback: \
             kubectl port-forward brings a scheduler of the cluster there"
        ),
        _ => bail!("--scheduler {address}: allowed is http://127.0.0.1:PORT or https://HOST[:PORT]"),
    }
}

/// What tells who asks, without what only the API server understands.
fn credentials(auth: AuthInfo) -> Result<AuthInfo> {
    let AuthInfo { token, token_file, exec, auth_provider, .. } = auth;
    if token.is_none() && token_file.is_none() && exec.is_none() && auth_provider.is_none() {
        bail!(
            "the kubeconfig's user has no token (a client certificate says nothing to the scheduler); give one with --token-file, \
             such as that of `kubectl create token ACCOUNT`"
        );
    }
    Ok(AuthInfo { token, token_file, exec, auth_provider, ..AuthInfo::default() })
}

/// True for what a name of Kubernetes may be made of, which is what a path or parameter of the API may hold.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':'))
}

/// A name as it is in a path of the API.
pub(super) fn plain(text: &str) -> Result<&str> {
    if !is_plain(text) {
        bail!("\"{text}\" is no name of Kubernetes: allowed are letters, digits, - and .");
    }
    Ok(text)
}

impl Remote {
    /// The document at a path of the scheduler's API.
    ///
    /// # Errors
    ///
    /// There is no token, or no answer, or it is a no: its own words.
    pub fn get(&self, connection: &Connection, path: &str) -> Result<Value> {
        let address = checked(self.scheduler.as_ref().context("--scheduler names none")?)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
        runtime.block_on(async {
            let mut config = Config::new(address.clone());
            config.auth_info = match &self.token_file {
                Some(file) => {
                    // Read here, so that what is wrong with it is said in its name.
                    std::fs::metadata(file).with_context(|| format!("--token-file {}", file.display()))?;
                    AuthInfo { token_file: Some(file.display().to_string()), ..AuthInfo::default() }
                }
                None => credentials(connection.config().await?.auth_info)?,
            };
            config.default_retry = false;
            config.connect_timeout = Some(Duration::from_secs(10));
            config.read_timeout = Some(TIMEOUT);
            let client = kube::Client::try_from(config).context("making a client")?;
            let request = Request::get(path).body(Vec::new()).context("making the request")?;
            match client.request::<Value>(request).await {
                Ok(value) => Ok(value),
                Err(kube::Error::Api(status)) => bail!("the scheduler at {address} answers {}: {}", status.code, status.message),
                Err(error) => Err(anyhow::Error::new(error).context(format!("asking the scheduler at {address}"))),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_in_the_clear_on_loopback_alone() {
        let is_taken = |text: &str| checked(&text.parse().expect("a URL")).is_ok();
        let taken = ["http://127.0.0.1:8081", "http://localhost:1/", "http://[::1]:8081", "https://berth.example"];
        let refused = ["http://berth.berth.svc:8081", "http://10.0.0.1", "http://127.0.0.1.example.com", "ftp://127.0.0.1", "127.0.0.1", "https://a/b", "https://a?x=1"];
        assert_eq!((taken.map(is_taken), refused.map(is_taken)), ([true; 4], [false; 7]));
    }

    #[test]
    fn a_client_certificate_is_no_token() {
        let certificate = AuthInfo { client_certificate: Some("x".to_owned()), ..AuthInfo::default() };
        assert!(credentials(certificate).expect_err("no token").to_string().contains("--token-file"));
        let both = AuthInfo { token_file: Some("t".to_owned()), client_certificate: Some("x".to_owned()), impersonate: Some("root".to_owned()), ..AuthInfo::default() };
        let kept = credentials(both).expect("a token");
        assert_eq!((kept.token_file.as_deref(), kept.client_certificate, kept.impersonate), (Some("t"), None, None));
    }
}
