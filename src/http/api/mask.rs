//! What who asks may not see is taken out of an answer before it becomes text: counts stay, names go.
//!
//! Without the right to list nodes, a node is `node#1` and a domain below region and zone `rack#1`, numbered in their order, so
//! alike in all answers while the cluster stays as it is; without the right to list pods everywhere, the work of others is that of their queue.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::facts::{Event, ObjectKey};
use berth_engine::outcome::{Code, DomainPath, Fix, FixKind, GangReport, Reason};
use berth_engine::remedy::{DomainRoom, Remedies, Remedy};
use berth_engine::world::World;

use crate::cli::render::explanation::{Before, Explained};
use crate::cli::render::view::{Eyes, OTHERS, of_queue};

/// Levels whose domains everybody may know: claims and selectors of every user name them.
const PUBLIC: [&str; 4] = [
    "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];

const HOSTNAME: &str = "kubernetes.io/hostname";

/// What somebody may see beyond the gang that they ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sees {
    /// Nodes, and so the names of domains.
    pub(super) nodes: bool,
    /// The pods of all namespaces.
    pub(super) pods: bool,
    /// The pods of these.
    pub(super) namespaces: BTreeSet<String>,
    /// How every queue stands; else only those of the work in these namespaces, and those above them.
    pub(super) queues: bool,
}

impl Sees {
    fn work_of(&self, namespace: &str) -> bool {
        self.pods || self.namespaces.contains(namespace)
    }
}

/// The mask of one answer.
pub(super) struct Mask<'a> {
    world: &'a World,
    sees: &'a Sees,
    nodes: BTreeMap<String, usize>,
    domains: BTreeMap<DomainPath, usize>,
    /// Domains numbered so far, by the short name of their level.
    counts: BTreeMap<String, usize>,
    /// Queues that are shown; `None` is all.
    queues: Option<BTreeSet<String>>,
}

impl<'a> Mask<'a> {
    pub(super) fn new(world: &'a World, sees: &'a Sees) -> Self {
        let mut mask = Self { world, sees, nodes: BTreeMap::new(), domains: BTreeMap::new(), counts: BTreeMap::new(), queues: None };
        if !sees.queues {
            mask.queues = Some(queues_of(world, &sees.namespaces));
        }
        if !sees.nodes {
            for name in world.node_names() {
                mask.node(name);
            }
            for (topology, _) in world.levels() {
                for domain in world.domain_capacities(&topology) {
                    mask.path(&domain.path);
                }
            }
        }
        mask
    }

    /// The queues that are shown, unless all are.
    pub(super) fn queues(&self) -> Option<&BTreeSet<String>> {
        self.queues.as_ref()
    }

    /// A gang with all that is known about it.
    pub(super) fn explained(&mut self, explained: &Explained) -> Explained {
        let Explained { gang, remedies, rooms, before } = explained;
        let gang = self.gang(gang);
        let remedies = Remedies { found: remedies.found.iter().map(|remedy| self.remedy(remedy)).collect(), ..*remedies };
        let rooms = rooms.iter().map(|room| DomainRoom { path: self.path(&room.path), ..room.clone() }).collect();
        let before = before.iter().map(|before| self.before(before)).collect();
        Explained { gang, remedies, rooms, before }
    }

    /// A gang alone.
    pub(super) fn gang(&mut self, gang: &GangReport) -> GangReport {
        let reasons = gang.reasons.iter().map(|reason| self.reason(reason)).collect();
        let mut gang = GangReport { reasons, ..gang.clone() };
        if !self.sees.nodes {
            gang.promised.clear();
            if let Some(quality) = &mut gang.quality {
                quality.containing = self.path(&quality.containing);
            }
        }
        gang
    }

    fn reason(&mut self, reason: &Reason) -> Reason {
        let detail = match reason.code {
            // The namespace and name of the gang that took the room.
            Code::Preempted if !self.sees.work_of(reason.detail.split('/').next().unwrap_or_default()) => OTHERS.to_owned(),
            _ => self.text(&reason.detail),
        };
        Reason {
            best_domain: reason.best_domain.as_ref().map(|path| self.path(path)),
            fixes: reason.fixes.iter().map(|fix| self.fix(fix, &[])).collect(),
            detail,
            ..reason.clone()
        }
    }

    fn remedy(&mut self, remedy: &Remedy) -> Remedy {
        let fixes = remedy.fixes.iter().map(|fix| self.fix(fix, &remedy.changes)).collect();
        Remedy { fixes, changes: remedy.changes.clone() }
    }

    fn fix(&mut self, fix: &Fix, changes: &[Event]) -> Fix {
        let target = match (fix.kind, fix.target.as_slice()) {
            (FixKind::LabelNodes | FixKind::Uncordon | FixKind::RestoreNodes | FixKind::AddNodes, names) => self.node_names(names),
            (FixKind::RemoveTaint, [key, names @ ..]) => [key.clone()].into_iter().chain(self.node_names(names)).collect(),
            (FixKind::EndWork, titles) => self.work(titles, changes),
            (_, target) => target.to_vec(),
        };
        Fix { domain: self.path(&fix.domain), target, ..fix.clone() }
    }

    /// Titles of the work that ends with these changes; each piece is a run of pods of one gang, or a pod in none.
    fn work(&self, titles: &[String], changes: &[Event]) -> Vec<String> {
        if self.sees.pods {
            return titles.to_vec();
        }
        let mut pieces: Vec<Option<String>> = Vec::new();
        for change in changes {
            let Event::PodDelete(uid) = change else { continue };
            let gang = self.world.gang_of_pod(uid);
            if gang.is_none() || pieces.last() != Some(&gang) {
                pieces.push(gang);
            }
        }
        let mut shown: Vec<String> = Vec::new();
        for (at, title) in titles.iter().enumerate() {
            let gang = pieces.get(at).and_then(|uid| self.world.gang_report(uid.as_ref()?));
            let title = match gang {
                Some(gang) if self.sees.work_of(&gang.key.namespace) => title.clone(),
                Some(gang) => of_queue(&gang.queue),
                None => of_queue(""),
            };
            if !shown.contains(&title) {
                shown.push(title);
            }
        }
        shown
    }

    fn before(&self, before: &Before) -> Before {
        if self.sees.work_of(&before.gang.namespace) {
            return before.clone();
        }
        let gang = self.world.gang_report(&before.uid);
        Before { name: gang.map_or_else(|| OTHERS.to_owned(), |gang| of_queue(&gang.queue)), ..before.clone() }
    }

    fn node_names(&mut self, names: &[String]) -> Vec<String> {
        names.iter().map(|name| self.node(name)).collect()
    }

    fn node(&mut self, name: &str) -> String {
        if self.sees.nodes {
            return name.to_owned();
        }
        let next = self.nodes.len() + 1;
        format!("node#{}", self.nodes.entry(name.to_owned()).or_insert(next))
    }

    fn path(&mut self, path: &DomainPath) -> DomainPath {
        if self.sees.nodes {
            return path.clone();
        }
        (0..path.len()).map(|depth| (path[depth].0.clone(), self.domain(&path[..=depth]))).collect()
    }

    /// The domain that the path leads to: one of the same name elsewhere is another.
    fn domain(&mut self, path: &[(String, String)]) -> String {
        let Some((level, value)) = path.last() else { return String::new() };
        if PUBLIC.contains(&level.as_str()) {
            return value.clone();
        }
        if level == HOSTNAME {
            return self.node(value);
        }
        let short = level.rsplit('/').next().unwrap_or(level).to_owned();
        let number = match self.domains.get(path) {
            Some(number) => *number,
            None => {
                let count = self.counts.entry(short.clone()).or_default();
                *count += 1;
                self.domains.insert(path.to_vec(), *count);
                *count
            }
        };
        format!("{short}#{number}")
    }

    /// Words of somebody else, without the names of nodes.
    fn text(&mut self, text: &str) -> String {
        if self.sees.nodes {
            return text.to_owned();
        }
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let mut shown = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            // A name at the end of a sentence.
            let name = word.trim_end_matches('.');
            if self.world.has_node(name) {
                shown.push_str(&self.node(name));
                shown.push_str(&word[name.len()..]);
            } else {
                shown.push_str(word);
            }
            let next = after.chars().next();
            shown.extend(next);
            rest = &after[next.map_or(0, char::len_utf8)..];
        }
        shown
    }
}

/// The queues of the work in these namespaces, and those above them.
fn queues_of(world: &World, namespaces: &BTreeSet<String>) -> BTreeSet<String> {
    let mut names: BTreeSet<String> =
        world.gang_reports().into_iter().filter(|gang| namespaces.contains(&gang.key.namespace)).map(|gang| gang.queue).collect();
    let queues = world.queue_reports();
    // As deep as there are queues, so one that is above itself ends it as well.
    for _ in 0..queues.len() {
        let above = queues.iter().filter(|queue| names.contains(&queue.name)).filter_map(|queue| queue.share.parent.clone());
        let above: Vec<String> = above.collect();
        let before = names.len();
        names.extend(above);
        if names.len() == before {
            break;
        }
    }
    names
}

impl Eyes for Mask<'_> {
    fn node(&mut self, name: &str) -> String {
        self.node(name)
    }
    fn path(&mut self, path: &DomainPath) -> DomainPath {
        self.path(path)
    }
    fn gang(&mut self, gang: &GangReport) -> Option<GangReport> {
        self.sees.work_of(&gang.key.namespace).then(|| self.gang(gang))
    }
    fn knows(&self, gang: &ObjectKey) -> bool {
        self.sees.work_of(&gang.namespace)
    }
    fn knows_queue(&self, name: &str) -> bool {
        self.queues.as_ref().is_none_or(|names| names.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{SECRETS, cluster};
    use super::*;
    use crate::cli::render::explanation::{Explanation, json, table};
    use crate::moment::waits;
    use crate::simulate::cluster::Cluster;

    fn explained(cluster: &Cluster, name: &str) -> Explained {
        let gangs = cluster.world().gang_reports();
        let gang = gangs.iter().find(|gang| gang.owner == name && waits(gang)).expect("it waits");
        Explained::of(&cluster.moment(), gang, 96)
    }

    /// The whole answer as text of both kinds.
    fn shown(cluster: &Cluster, sees: &Sees, name: &str) -> String {
        let explained = vec![Mask::new(cluster.world(), sees).explained(&explained(cluster, name))];
        let explanation = Explanation { explained, what_if: None };
        format!("{:#}\n{}", json(&explanation), table(&explanation))
    }

    #[test]
    fn who_may_see_everything_sees_it() {
        let cluster = cluster();
        let all = shown(&cluster, &Sees { nodes: true, pods: true, ..Sees::default() }, "Job/ours");
        let plain = Explanation { explained: vec![explained(&cluster, "Job/ours")], what_if: None };
        assert_eq!(all, format!("{:#}\n{}", json(&plain), table(&plain)));
        for secret in SECRETS {
            assert!(all.contains(secret), "{secret} is in the plain answer, or this test proves nothing: {all}");
        }
    }

    #[test]
    fn names_go_and_counts_stay() {
        let cluster = cluster();
        let sees = Sees { namespaces: ["mine".to_owned()].into(), ..Sees::default() };
        let text = shown(&cluster, &sees, "Job/ours");
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert!(text.contains("region-1/zone-1/block#1/rack#1"), "what is public stays, what is below is numbered: {text}");
        assert!(text.contains("end work of queue theirs"), "{text}");
        assert!(text.contains("node#"), "{text}");
        // Every number is that of the plain answer.
        let (plain, masked) = (explained(&cluster, "Job/ours"), Mask::new(cluster.world(), &sees).explained(&explained(&cluster, "Job/ours")));
        let counts = |explained: &Explained| -> Vec<(u32, u64, u64)> { explained.rooms.iter().map(|room| (room.nodes, room.has, room.needs)).collect() };
        assert_eq!(counts(&plain), counts(&masked));
        let reason = |explained: &Explained| explained.gang.reasons.first().map(|reason| (reason.code, reason.has, reason.needs));
        assert_eq!(reason(&plain), reason(&masked));
        assert_eq!(plain.remedies.found.len(), masked.remedies.found.len());
    }

    #[test]
    fn each_right_opens_its_own_part() {
        let cluster = cluster();
        let nodes = shown(&cluster, &Sees { nodes: true, ..Sees::default() }, "Job/ours");
        assert!(nodes.contains("gold-") && nodes.contains("rack-") && !nodes.contains("their-"), "{nodes}");
        let pods = shown(&cluster, &Sees { pods: true, ..Sees::default() }, "Job/ours");
        assert!(!pods.contains("gold-") && !pods.contains("rack-") && pods.contains("their-"), "{pods}");
        let theirs = Sees { namespaces: ["other".to_owned()].into(), ..Sees::default() };
        assert!(shown(&cluster, &theirs, "Job/ours").contains("their-"), "a namespace whose pods they may list");
    }

    #[test]
    fn words_of_the_api_server_lose_the_names_of_nodes() {
        let cluster = cluster();
        let sees = Sees::default();
        let mut mask = Mask::new(cluster.world(), &sees);
        let text = mask.text("nodes \"gold-1\" not found; gold-2, gold-1. gold-10 é gold-");
        assert_eq!(text, "nodes \"node#1\" not found; node#2, node#1. gold-10 é gold-");
        let mut preempted = Reason::new(Code::Preempted);
        preempted.detail = "other/their-gang".to_owned();
        assert_eq!(mask.reason(&preempted).detail, "other work");
    }

    #[test]
    fn racks_of_one_name_in_two_blocks_are_two() {
        let cluster = cluster();
        let sees = Sees::default();
        let mut mask = Mask::new(cluster.world(), &sees);
        let path = |block: &str| vec![("example.com/block".to_owned(), block.to_owned()), ("example.com/rack".to_owned(), "r".to_owned())];
        let last = |path: DomainPath| path.last().map(|(_, value)| value.clone()).unwrap_or_default();
        let found: Vec<String> = ["a", "b", "a"].map(|block| last(mask.path(&path(block)))).into();
        assert_eq!(found, ["rack#3", "rack#4", "rack#3"]);
    }
}
