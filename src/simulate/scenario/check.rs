//! Expectations against the state of a cluster.

use std::collections::BTreeSet;

use berth_engine::outcome::{Decision, GangReport, GangState};

use super::format::{DomainsUsed, Expect, SameDomain};
use crate::explain;
use crate::simulate::cluster::Cluster;
use crate::simulate::result::{PodResult, SimulationResult};

type Check = Result<(), String>;

/// The first expectation that does not hold, with the decision that broke it.
pub(super) fn first_unmet(expect: &Expect, cluster: &Cluster) -> Option<String> {
    let state = State {
        result: SimulationResult::of(cluster),
        decisions: &cluster.decisions,
        evicted: cluster.evicted.iter().map(String::as_str).collect(),
    };
    state.check(expect).err()
}

struct State<'a> {
    result: SimulationResult,
    decisions: &'a [Decision],
    evicted: BTreeSet<&'a str>,
}

impl State<'_> {
    fn check(&self, expect: &Expect) -> Check {
        for (gang, nodes) in &expect.placed {
            self.placed(gang, nodes)?;
        }
        for (name, node) in &expect.pods {
            let pod = self.pod(name)?;
            if pod.node.as_deref() != Some(node) {
                return Err(format!(
                    "pod {name} should be on {node}, is {}{}",
                    on(pod),
                    self.because(&pod.gang)
                ));
            }
        }
        for same in &expect.same_domain {
            self.same_domain(same)?;
        }
        for used in &expect.domains_used {
            self.domains_used(used)?;
        }
        for (gang, code) in &expect.pending {
            self.pending(gang, code)?;
        }
        for (gang, words) in &expect.sentence {
            let sentence = self
                .gang(gang)?
                .reasons
                .first()
                .map(explain::sentence)
                .unwrap_or_default();
            if !sentence.contains(words) {
                return Err(format!(
                    "the reason of {gang} should say \"{words}\", says \"{sentence}\""
                ));
            }
        }
        for gang in &expect.done {
            let report = self.gang(gang)?;
            if report.state != GangState::Done {
                return Err(format!("{gang} should be over, is {:?}{}", report.state, self.because(gang)));
            }
        }
        for (gang, codes) in &expect.warnings {
            let found: Vec<&str> = self.gang(gang)?.warnings.iter().map(|warning| warning.code.as_str()).collect();
            if found != *codes {
                return Err(format!("{gang} should have the warnings {codes:?}, has {found:?}"));
            }
        }
        for (gang, count) in &expect.bound_of {
            let report = self.gang(gang)?;
            if report.bound != *count {
                return Err(format!(
                    "{gang} should have {count} bound pods, has {}{}",
                    report.bound,
                    self.because(gang)
                ));
            }
        }
        if let Some(count) = expect.bound.filter(|count| *count != self.result.bound()) {
            return Err(format!("{count} pods should have a node, {} have", self.result.bound()));
        }
        if let Some(count) = expect.skipped.filter(|count| *count != self.result.skipped.len()) {
            return Err(format!(
                "{count} objects should be skipped, {} are: {:?}",
                self.result.skipped.len(),
                self.result.skipped
            ));
        }
        if let Some(pods) = &expect.evicted {
            let wanted: BTreeSet<&str> = pods.iter().map(String::as_str).collect();
            if wanted != self.evicted {
                return Err(format!("{wanted:?} should have been evicted, {:?} were", self.evicted));
            }
        }
        Ok(())
    }

    fn gang(&self, name: &str) -> Result<&GangReport, String> {
        let matches = |gang: &&GangReport| {
            gang.key.name == name || gang.owner == name || format!("{}/{}", gang.key.namespace, gang.key.name) == name
        };
        let found = self.result.gangs.iter().find(matches);
        found.ok_or_else(|| {
            let known: Vec<&str> = self.result.gangs.iter().map(|gang| gang.key.name.as_str()).collect();
            format!("no gang {name}; there are: {}", known.join(", "))
        })
    }

    fn pod(&self, name: &str) -> Result<&PodResult, String> {
        let found = self
            .result
            .pods
            .iter()
            .find(|pod| pod.name == name || format!("{}/{}", pod.namespace, pod.name) == name);
        found.ok_or_else(|| format!("no pod {name}"))
    }

    fn members(&self, name: &str) -> Result<Vec<&PodResult>, String> {
        let gang = self.gang(name)?;
        let of = |pod: &&PodResult| pod.gang == gang.key.name && pod.namespace == gang.key.namespace;
        Ok(self.result.pods.iter().filter(of).collect())
    }

    /// The gang's latest decision and why it waits.
    fn because(&self, name: &str) -> String {
        let Ok(gang) = self.gang(name) else {
            return String::new();
        };
        let mut text = String::new();
        if let Some(decision) = self.decisions.iter().rev().find(|decision| decision.gang == gang.key) {
            let places: Vec<String> = decision
                .placements
                .iter()
                .map(|place| format!("{} on {}", place.pod.name, place.node))
                .collect();
            text.push_str(&format!("; decision {}: {}", decision.id, places.join(", ")));
        }
        for reason in gang.reasons.iter().take(1) {
            text.push_str(&format!("; {}: {}", reason.code_name(), explain::sentence(reason)));
        }
        text
    }

    fn placed(&self, name: &str, nodes: &[String]) -> Check {
        let gang = self.gang(name)?;
        if gang.state != GangState::Placed {
            return Err(format!(
                "{name} should be placed, {} of {} pods are{}",
                gang.bound,
                gang.pods,
                self.because(name)
            ));
        }
        let used: BTreeSet<&str> = self
            .members(name)?
            .iter()
            .filter_map(|pod| pod.node.as_deref())
            .collect();
        let wanted: BTreeSet<&str> = nodes.iter().map(String::as_str).collect();
        if !wanted.is_empty() && wanted != used {
            return Err(format!(
                "{name} should use exactly {wanted:?}, uses {used:?}{}",
                self.because(name)
            ));
        }
        Ok(())
    }

    fn domains(&self, pods: &[&PodResult], level: &str) -> BTreeSet<String> {
        let domain = |pod: &&PodResult| {
            let path = pod
                .domains
                .values()
                .find(|path| path.iter().any(|(label, _)| label == level))?;
            let end = path.iter().position(|(label, _)| label == level)?;
            Some(explain::domain(&path[..=end].to_vec()))
        };
        let node = |pod: &&PodResult| {
            if level == "kubernetes.io/hostname" {
                pod.node.clone()
            } else {
                None
            }
        };
        pods.iter()
            .filter(|pod| pod.node.is_some())
            .map(|pod| {
                domain(pod)
                    .or_else(|| node(pod))
                    .unwrap_or_else(|| format!("no {level}"))
            })
            .collect()
    }

    fn same_domain(&self, same: &SameDomain) -> Check {
        let mut pods = Vec::new();
        if let Some(gang) = &same.gang {
            let inside = |pod: &&PodResult| same.subgroup.as_ref().is_none_or(|subgroup| *subgroup == pod.subgroup);
            pods.extend(self.members(gang)?.into_iter().filter(inside));
        }
        for name in &same.pods {
            pods.push(self.pod(name)?);
        }
        if pods.is_empty() {
            return Err(format!("sameDomain of {} names no pod", same.level));
        }
        let because = || pods.first().map(|pod| self.because(&pod.gang)).unwrap_or_default();
        if let Some(pod) = pods.iter().find(|pod| pod.node.is_none() && !same.pods.is_empty()) {
            return Err(format!(
                "pod {} should have a node, is {}{}",
                pod.name,
                on(pod),
                because()
            ));
        }
        let domains = self.domains(&pods, &same.level);
        let right = |domain: &String| {
            same.domain
                .as_ref()
                .is_none_or(|wanted| domain == wanted || domain.ends_with(&format!("/{wanted}")))
        };
        if domains.len() == 1 && domains.iter().all(right) {
            return Ok(());
        }
        let wanted = same
            .domain
            .as_ref()
            .map_or_else(String::new, |domain| format!(", {domain}"));
        Err(format!(
            "pods should be in one {}{wanted}, are in {domains:?}{}",
            same.level,
            because()
        ))
    }

    fn domains_used(&self, used: &DomainsUsed) -> Check {
        let pods = match &used.gang {
            Some(gang) => self.members(gang)?,
            None => self.result.pods.iter().collect(),
        };
        let domains = self.domains(&pods, &used.level);
        if domains.len() == used.count {
            return Ok(());
        }
        let because = used.gang.as_ref().map_or_else(String::new, |gang| self.because(gang));
        Err(format!(
            "{} domains of {} should be used, {domains:?} are{because}",
            used.count, used.level
        ))
    }

    fn pending(&self, name: &str, code: &str) -> Check {
        let gang = self.gang(name)?;
        if gang.bound >= gang.pods {
            return Err(format!(
                "{name} should wait, all {} pods have a node{}",
                gang.pods,
                self.because(name)
            ));
        }
        let found = gang.reasons.first().map_or("", |reason| reason.code_name());
        if code.is_empty() || found == code {
            return Ok(());
        }
        Err(format!(
            "{name} should wait with {code}, waits with \"{found}\"{}",
            self.because(name)
        ))
    }
}

fn on(pod: &PodResult) -> String {
    pod.node
        .as_ref()
        .map_or_else(|| "pending".to_owned(), |node| format!("on {node}"))
}
