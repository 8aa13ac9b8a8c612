//! `--to html`: the fabric as the page that `berth tree` and `simulate` write too, without what belongs to gangs.

use berth_discovery::{Fabric, Finding};
use serde_json::{Value, json};

use super::super::render::page;

/// Findings that the page lists.
const MOST_NOTES: usize = 500;

/// The page.
pub(super) fn html(fabric: &Fabric) -> String {
    page::html(&[document(fabric)])
}

/// Hosts with their domains, widest first, and how their links do.
fn document(fabric: &Fabric) -> Value {
    let has_accelerators = fabric.hosts.values().any(|host| host.accelerator.is_some());
    let nodes = fabric.hosts.iter().map(|(name, host)| {
        let mut places = serde_json::Map::new();
        if fabric.depth > 0 {
            places.insert("fabric".into(), host.tiers.iter().rev().cloned().collect());
        }
        if has_accelerators {
            places.insert("accelerators".into(), host.accelerator.iter().chain(&host.sub_domain).cloned().collect());
        }
        // One of one, none in use, held or stranded.
        json!({ "n": name, "a": [1, 0, 0, 0], "s": null, "w": [], "h": host.health, "p": places })
    });
    let mut topologies = serde_json::Map::new();
    if fabric.depth > 0 {
        topologies.insert("fabric".into(), (0..fabric.depth).rev().map(|tier| Value::from(format!("tier {tier}"))).collect());
    }
    if has_accelerators {
        topologies.insert("accelerators".into(), json!(["accelerator domain", "part"]));
    }
    // What is slow first: it is what people look for.
    let mut findings: Vec<&Finding> = fabric.findings.iter().collect();
    findings.sort_by_key(|finding| !finding.kind.starts_with("Slow"));
    let mut notes: Vec<String> = findings.into_iter().take(MOST_NOTES).map(|finding| format!("{}: {} {}", finding.kind, finding.subject, finding.message)).collect();
    if fabric.findings.len() > MOST_NOTES {
        notes.push(format!("and {} more: --to findings", fabric.findings.len() - MOST_NOTES));
    }
    json!({
        "fabric": true, "heading": "The fabric", "unit": "hosts", "topologies": topologies, "nodes": nodes.collect::<Vec<_>>(),
        "gangs": [], "queues": [], "decisions": [], "evicted": [], "notes": notes,
    })
}

#[cfg(test)]
mod tests {
    use berth_discovery::sources::{measure, slurm};

    use super::*;

    #[test]
    fn hosts_stand_in_their_domains_with_what_was_measured() {
        let mut tree = slurm::read("SwitchName=s Switches=r[1-2]\nSwitchName=r1 Nodes=a[1-2]\nSwitchName=r2 Nodes=b[1-2]\n").expect("a tree");
        tree.hosts.get_mut("a1").expect("it is in the tree").accelerator = Some("nvl".into());
        let fabric = tree.join(measure::list("a1 a2 100\nb1 b2 40\n").expect("a list")).weighed(&[], 70);
        let document = document(&fabric);
        assert_eq!(document["topologies"], json!({"fabric": ["tier 1", "tier 0"], "accelerators": ["accelerator domain", "part"]}));
        assert_eq!(document["nodes"][0], json!({"n": "a1", "a": [1, 0, 0, 0], "s": null, "w": [], "h": 100, "p": {"fabric": ["s", "r1"], "accelerators": ["nvl"]}}));
        assert_eq!((&document["nodes"][2]["h"], &document["nodes"][2]["p"]["accelerators"]), (&json!(40), &json!([])));
        assert!(document["notes"][0].as_str().expect("a note").starts_with("SlowDomain: r2 is at 40 %"), "{document}");
        assert!(html(&fabric).contains("\"fabric\":true"));
    }
}
