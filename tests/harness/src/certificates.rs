//! Certificates and keys of one control plane: elliptic curves, so that they
//! take milliseconds.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use crate::error::{Error, Result};

/// The files, all PEM.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    pub(crate) ca: PathBuf,
    pub(crate) server: Pair,
    pub(crate) admin: Pair,
    pub(crate) controllers: Pair,
    pub(crate) scheduler: Pair,
    /// Signs service-account tokens; its `certificate` is a bare public key.
    pub(crate) service_accounts: Pair,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificates {
    /// Makes all of them in `dir`.
    pub(crate) fn make(dir: &Path) -> Result<Self> {
        let mut params = subject("berth-test-ca", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let ca_path = dir.join("ca.crt");
        write(&ca_path, &ca.pem())?;

        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(String::from);
        let mut serving = CertificateParams::new(names.to_vec())?;
        serving
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];

        let key = KeyPair::generate()?;
        let service_accounts = pair(dir, "service-accounts");
        write(&service_accounts.certificate, &key.public_key_pem())?;
        write(&service_accounts.key, &key.serialize_pem())?;
        Ok(Self {
            server: issue(dir, "apiserver", serving, &ca)?,
            admin: issue(dir, "admin", client("admin", Some("system:masters")), &ca)?,
            controllers: issue(
                dir,
                "controllers",
                client("system:kube-controller-manager", None),
                &ca,
            )?,
            scheduler: issue(dir, "scheduler", client("system:kube-scheduler", None), &ca)?,
            ca: ca_path,
            service_accounts,
        })
    }
}

fn subject(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    params
}

fn client(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = subject(name, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn pair(dir: &Path, name: &str) -> Pair {
    Pair {
        certificate: dir.join(format!("{name}.crt")),
        key: dir.join(format!("{name}.key")),
    }
}

fn issue(
    dir: &Path,
    name: &str,
    mut params: CertificateParams,
    ca: &CertifiedIssuer<'_, KeyPair>,
) -> Result<Pair> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let signed = params.signed_by(&key, ca)?;
    let pair = pair(dir, name);
    write(&pair.certificate, &signed.pem())?;
    write(&pair.key, &key.serialize_pem())?;
    Ok(pair)
}

/// Writes a file that only its owner reads.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::io(format!("writing {}", path.display())))
}
