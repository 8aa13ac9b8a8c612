//! Names: label values, hosts by any of their names, FNV.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::Node;

/// The longest value that a label may have.
pub const MAX_VALUE: usize = 63;

/// FNV-1a over 64 bits (the offset and prime of the FNV reference).
#[must_use]
pub fn fnv64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The name as a label value: as it is where it may be one, else `x` and its hash in hexadecimal, as Topograph writes
/// values that are too long.
#[must_use]
pub fn label_value(name: &str) -> String {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    let inner = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    if bytes.len() <= MAX_VALUE && inner && edge(bytes.first()) && edge(bytes.last()) {
        name.to_owned()
    } else {
        format!("x{:x}", fnv64(bytes))
    }
}

/// Values that labellers write when they know nothing; compared in lower case.
const PLACEHOLDERS: [&str; 10] = ["", "no-topology", "unknown", "none", "null", "nil", "n/a", "na", "undefined", "<no value>"];

/// True for a value that says nothing: empty, a placeholder, or a fabric whose UUID is zero.
#[must_use]
pub fn is_placeholder(value: &str) -> bool {
    let value = value.trim().to_lowercase();
    let is_zero = |text: &str| !text.is_empty() && text.chars().all(|c| c == '0' || c == '-');
    // A clique is `<cluster UUID>.<number>`: without a fabric the UUID is zero.
    let uuid = value.rsplit_once('.').map_or(value.as_str(), |(uuid, _)| uuid);
    PLACEHOLDERS.contains(&value.as_str()) || (uuid.len() == 36 && is_zero(uuid)) || value.contains("no-imds")
}

/// Names that machines have before anybody named them.
const UNNAMED: [&str; 6] = ["localhost", "localhost.localdomain", "ubuntu", "debian", "(none)", "linux"];

/// True when the name tells one machine from another.
#[must_use]
pub fn is_own_name(name: &str) -> bool {
    !UNNAMED.contains(&name.to_lowercase().as_str())
}

/// Finds nodes by a host's name: in any case, with or without its domain.
#[derive(Clone, Debug, Default)]
pub struct Known {
    full: BTreeMap<String, String>,
    short: BTreeMap<String, BTreeSet<String>>,
}

/// What a name is among the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// This node.
    Node(String),
    /// None of them.
    Nobody,
    /// More than one has this name without its domain.
    Ambiguous(Vec<String>),
}

impl Known {
    /// An index over node names.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut known = Self::default();
        for name in names {
            let lower = name.to_lowercase();
            known.short.entry(short(&lower).to_owned()).or_default().insert(name.to_owned());
            known.full.insert(lower, name.to_owned());
        }
        known
    }

    /// The node that a host name means.
    #[must_use]
    pub fn find(&self, host: &str) -> Match {
        let lower = host.to_lowercase();
        if let Some(name) = self.full.get(&lower) {
            return Match::Node(name.clone());
        }
        let same = self.short.get(short(&lower)).into_iter().flatten();
        // Two full names with different domains are different machines.
        let open = |name: &&String| !(lower.contains('.') && name.contains('.'));
        let found: Vec<String> = same.filter(open).cloned().collect();
        match found.as_slice() {
            [] => Match::Nobody,
            [one] => Match::Node(one.clone()),
            _ => Match::Ambiguous(found),
        }
    }
}

/// Finds nodes by what a source calls them: an instance of a cloud, or a host's name.
pub(crate) struct KnownNodes<'a> {
    names: Known,
    instances: BTreeMap<&'a str, &'a str>,
}

impl<'a> KnownNodes<'a> {
    /// An index over nodes.
    pub(crate) fn new(nodes: &'a [Node]) -> Self {
        let names = Known::new(nodes.iter().map(|node| node.name.as_str()));
        let instances = nodes.iter().filter(|node| !node.instance().is_empty()).map(|node| (node.instance(), node.name.as_str()));
        Self { names, instances: instances.collect() }
    }

    /// The node that is meant.
    pub(crate) fn find(&self, name: &str) -> Match {
        self.instances.get(name).map_or_else(|| self.names.find(name), |node| Match::Node((*node).to_owned()))
    }
}

fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Whether a name fits a pattern in which `*` stands for anything; in any case.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_lowercase(), name.to_lowercase());
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The first few of a list, and how many more there are.
pub fn listed<'a>(names: impl Iterator<Item = &'a str> + Clone, most: usize) -> String {
    let n = names.clone().count();
    let shown: Vec<&str> = names.take(most).collect();
    if n > most { format!("{} and {} more", shown.join(", "), n - most) } else { shown.join(", ") }
}
