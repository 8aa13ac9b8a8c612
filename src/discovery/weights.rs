//! What measured links say of the parts of a fabric: how fast a domain or a host is next to its peers, in percent.
//!
//! A figure means something only next to figures of its kind: of the same source, between as many hosts, over the same tier.
//! So each is taken relative to the median of its kind. A host is as good as its best measurement, since any other may have been
//! spoilt by the other end; a domain as the median of those inside it, and of those that leave it. Whole numbers throughout.

use std::collections::{BTreeMap, BTreeSet};

use crate::fabric::Fabric;
use crate::names::{Known, Match, listed};
use crate::node::Node;

/// A domain or host below this part of its peers is named as slow, unless the caller says otherwise.
pub const SLOW_BELOW: u64 = 70;

/// One figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The kind of source.
    pub source: &'static str,
    /// Where it stands in it.
    pub place: String,
    /// Hosts that took part; or one host or domain.
    pub ends: Vec<String>,
    /// Thousandths of whatever the source counts in.
    pub value: u64,
}

/// How a domain does next to its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// The tier; 0 is the nearest.
    pub tier: usize,
    /// The domain.
    pub domain: String,
    /// Links inside it, in percent of those of its peers; `None` when they were not measured, or nobody else's.
    pub inside: Option<u64>,
    /// Links that leave it.
    pub out: Option<u64>,
    /// Measurements that this rests on.
    pub measurements: usize,
}

/// A measurement whose ends are known.
struct Sample<'a> {
    source: &'static str,
    hosts: Vec<&'a str>,
    /// The named domain with its tier, where it is one of a domain as a whole.
    domain: Option<(usize, &'a str)>,
    /// The lowest tier on which all hosts are in one domain; `None` when there is none.
    tier: Option<usize>,
    value: u64,
}

/// The figure that half of them reach; of an even number the greater one of the two in the middle.
fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

fn percent(value: u64, of: u64) -> u64 {
    u64::try_from(u128::from(value) * 100 / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

impl Fabric {
    /// Weighs hosts and domains by what was measured. Nodes are known by their names, too, where the fabric has instances.
    #[must_use]
    pub fn weighed(mut self, nodes: &[Node], slow_below: u64) -> Self {
        if self.measured.is_empty() {
            return self;
        }
        let (weights, hosts, notes) = weigh(&self, nodes, slow_below);
        for (name, host) in &mut self.hosts {
            let tiers = host.tiers.iter().enumerate();
            let own = tiers.filter_map(|(tier, domain)| weights.get(&(tier, domain.clone()))).flat_map(|weight| [weight.inside, weight.out]).flatten();
            host.health = own.chain(hosts.get(name).copied()).min().map(|percent| percent.min(100) / 10 * 10);
        }
        self.weights = weights.into_values().collect();
        self.findings.extend(notes.findings);
        self
    }
}

type Weights = BTreeMap<(usize, String), Weight>;

fn weigh(fabric: &Fabric, nodes: &[Node], slow_below: u64) -> (Weights, BTreeMap<String, u64>, Fabric) {
    let mut notes = Fabric::default();
    let samples = samples(fabric, nodes, &mut notes);
    let relative = relative(&samples);
    let weights = domains(fabric, &samples, &relative);
    for weight in weights.values() {
        for (percent, kind, what) in [(weight.inside, "SlowDomain", "links inside it"), (weight.out, "SlowUplinks", "links that leave it")] {
            if let Some(percent) = percent.filter(|percent| *percent < slow_below) {
                notes.find(kind, &weight.domain, format!("is at {percent} % of its peers of tier {}, by {} measurements: {what}", weight.tier, weight.measurements));
            }
        }
    }
    let hosts = hosts(fabric, &samples, &relative);
    for (host, percent) in hosts.iter().filter(|(_, percent)| **percent < slow_below) {
        let domain = fabric.hosts.get(host).and_then(|host| host.tiers.first()).map_or("the fabric", String::as_str);
        notes.find("SlowHost", host, format!("is at {percent} % of the other hosts of {domain} in its best measurement"));
    }
    (weights, hosts, notes)
}

/// Measurements with their hosts; what names others is noted.
fn samples<'a>(fabric: &'a Fabric, nodes: &[Node], notes: &mut Fabric) -> Vec<Sample<'a>> {
    let known = Known::new(fabric.hosts.keys().map(String::as_str));
    let known_nodes = Known::new(nodes.iter().map(|node| node.name.as_str()));
    let instances: BTreeMap<&str, &str> = nodes.iter().map(|node| (node.name.as_str(), node.instance())).collect();
    let mut domains: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for host in fabric.hosts.values() {
        for (tier, domain) in host.tiers.iter().enumerate() {
            domains.entry(domain).or_insert((tier, domain));
        }
    }
    let host_of = |name: &str| -> Option<&'a str> {
        let by_node = || match known_nodes.find(name) {
            Match::Node(node) => instances.get(node.as_str()).map(|instance| (*instance).to_owned()),
            _ => None,
        };
        let found = if let Match::Node(found) = known.find(name) { Some(found) } else { by_node() }?;
        fabric.hosts.get_key_value(&found).map(|(name, _)| name.as_str())
    };
    let mut samples = Vec::new();
    let (mut strangers, mut lost) = (BTreeSet::new(), 0_usize);
    for measurement in &fabric.measured {
        let hosts: BTreeSet<&str> = measurement.ends.iter().filter_map(|end| host_of(end)).collect();
        let domain = if let [name] = measurement.ends.as_slice() { domains.get(name.as_str()).copied().filter(|_| hosts.is_empty()) } else { None };
        let unknown: Vec<&String> = measurement.ends.iter().filter(|end| host_of(end).is_none()).collect();
        if domain.is_none() && !unknown.is_empty() {
            strangers.extend(unknown);
            lost += 1;
            continue;
        }
        let hosts: Vec<&str> = hosts.into_iter().collect();
        let tier = domain.map(|(tier, _)| tier).or_else(|| common(fabric, &hosts));
        samples.push(Sample { source: measurement.source, hosts, domain, tier, value: measurement.value });
    }
    if let Some(first) = strangers.first() {
        let names = listed(strangers.iter().map(|name| name.as_str()), 3);
        notes.find("UnknownEnd", first, format!("{lost} measurements name what is no host and no domain of the fabric ({names}): left out"));
    }
    samples
}

/// The lowest tier on which several hosts are in one domain.
fn common(fabric: &Fabric, hosts: &[&str]) -> Option<usize> {
    if hosts.len() < 2 {
        return None;
    }
    (0..fabric.depth).find(|tier| {
        let of = |host: &&str| fabric.hosts.get(*host).and_then(|host| host.tiers.get(*tier));
        hosts.first().map(of).is_some_and(|first| first.is_some() && hosts.iter().all(|host| of(host) == first))
    })
}

/// Each figure in thousandths of the median of its kind.
fn relative(samples: &[Sample<'_>]) -> Vec<u64> {
    let kind = |sample: &Sample<'_>| (sample.source, sample.domain.is_some(), sample.hosts.len(), sample.tier);
    let mut kinds: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    samples.iter().for_each(|sample| kinds.entry(kind(sample)).or_default().push(sample.value));
    let medians: BTreeMap<_, u64> = kinds.into_iter().filter_map(|(kind, values)| Some((kind, median(values)?))).collect();
    samples.iter().map(|sample| percent(sample.value.saturating_mul(10), medians.get(&kind(sample)).copied().unwrap_or(1))).collect()
}

/// Figures of domains: inside them, and out of them, each next to those of their peers.
fn domains(fabric: &Fabric, samples: &[Sample<'_>], relative: &[u64]) -> Weights {
    let mut weights: Weights = BTreeMap::new();
    for tier in 0..fabric.depth {
        let (mut inside, mut out): (BTreeMap<&str, Vec<u64>>, BTreeMap<&str, Vec<u64>>) = Default::default();
        for (sample, relative) in samples.iter().zip(relative) {
            if let Some((_, domain)) = sample.domain {
                if sample.tier == Some(tier) {
                    inside.entry(domain).or_default().push(*relative);
                }
                continue;
            }
            let of = |host: &&str| fabric.hosts.get(*host).and_then(|host| host.tiers.get(tier)).map(String::as_str);
            let touched: BTreeSet<&str> = sample.hosts.iter().filter_map(of).collect();
            match sample.tier {
                // Links inside a rack say nothing of the spine above it.
                Some(common) if common < tier => {}
                Some(common) if common == tier => touched.into_iter().for_each(|domain| inside.entry(domain).or_default().push(*relative)),
                _ if sample.hosts.len() > 1 => touched.into_iter().for_each(|domain| out.entry(domain).or_default().push(*relative)),
                _ => {}
            }
        }
        let n = |of: &BTreeMap<&str, Vec<u64>>, domain: &str| of.get(domain).map_or(0, Vec::len);
        let all: BTreeSet<&str> = inside.keys().chain(out.keys()).copied().collect();
        let measurements: Vec<(&str, usize)> = all.into_iter().map(|domain| (domain, n(&inside, domain) + n(&out, domain))).collect();
        let (inside, out) = (next_to_peers(&medians(inside)), next_to_peers(&medians(out)));
        for (domain, measurements) in measurements {
            let weight = Weight { tier, domain: domain.to_owned(), inside: inside.get(domain).copied(), out: out.get(domain).copied(), measurements };
            weights.insert((tier, domain.to_owned()), weight);
        }
    }
    weights
}

fn medians(figures: BTreeMap<&str, Vec<u64>>) -> Vec<(&str, u64)> {
    figures.into_iter().filter_map(|(name, values)| Some((name, median(values)?))).collect()
}

/// Each next to the median of the others, in percent; nothing without others.
fn next_to_peers<'a>(figures: &[(&'a str, u64)]) -> BTreeMap<&'a str, u64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by_key(|(name, figure)| (*figure, *name));
    let middle = sorted.len().saturating_sub(1) / 2;
    let of_others = |at: usize| sorted.get(if at <= middle { middle + 1 } else { middle }).map(|(_, figure)| *figure);
    let percents = sorted.iter().enumerate().filter_map(|(at, (name, own))| Some((*name, percent(*own, of_others(at)?))));
    percents.collect()
}

/// The best figure of each host, next to those of the other hosts of its nearest domain.
fn hosts(fabric: &Fabric, samples: &[Sample<'_>], relative: &[u64]) -> BTreeMap<String, u64> {
    let mut best: BTreeMap<&str, u64> = BTreeMap::new();
    for (sample, relative) in samples.iter().zip(relative) {
        for host in &sample.hosts {
            let best = best.entry(host).or_default();
            *best = (*best).max(*relative);
        }
    }
    let nearest = |host: &str| fabric.hosts.get(host).and_then(|host| host.tiers.first());
    let mut groups: BTreeMap<Option<&String>, Vec<(&str, u64)>> = BTreeMap::new();
    best.into_iter().for_each(|(host, best)| groups.entry(nearest(host)).or_default().push((host, best)));
    let percents = groups.values().flat_map(|group| next_to_peers(group));
    percents.map(|(host, percent)| (host.to_owned(), percent)).collect()
}
