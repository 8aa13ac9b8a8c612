use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::out::labels::{Keys, labels, patches};
use crate::out::{slurm as slurm_out, topology};
use crate::sources::cloud::{Cloud, read as cloud};
use crate::sources::{Filter, ibnet, netq, slurm, smi};
use crate::{Fabric, Node, hostlist, names};

const DUMP: &str = include_str!("../../../tests/data/fabric/ibnetdiscover-8-racks.txt");
const GRAPH: &str = include_str!("../../../tests/data/fabric/netq-topologyGraph.json");
const TRAYS: &str = include_str!("../../../tests/data/fabric/netq-computeNodes.json");

fn node(name: &str) -> Node {
    Node { name: name.into(), accelerated: true, ..Node::default() }
}

fn kinds(fabric: &Fabric) -> BTreeMap<&str, usize> {
    let mut kinds = BTreeMap::new();
    fabric.findings.iter().for_each(|finding| *kinds.entry(finding.kind).or_default() += 1);
    kinds
}

#[test]
fn a_real_dump_has_eight_racks_under_one_spine_group() {
    let fabric = ibnet::read(DUMP, &Filter::default()).unwrap();
    assert_eq!(fabric.depth, 2);
    let sizes: Vec<usize> = fabric.domains(0).values().map(Vec::len).collect();
    assert_eq!(sizes, [10, 11, 18, 17, 18, 15, 16, 14]);
    assert_eq!(fabric.domains(1).len(), 1);
    assert_eq!(fabric.hosts.len(), 119);
    let kinds = kinds(&fabric);
    assert_eq!(kinds["UnnamedAdapter"], 69);
    let strangers: Vec<&str> = fabric.findings.iter().filter(|finding| finding.kind == "NotAHost").map(|finding| finding.subject.as_str()).collect();
    assert_eq!(strangers, ["B11-P1-CUFM-02", "localhost", "ubuntu"]);
    // The leaf of one rail is absent from the first rack.
    let few: Vec<&str> = fabric.findings.iter().filter(|finding| finding.kind == "FewLeaves").map(|finding| finding.subject.as_str()).collect();
    assert_eq!(few, ["A09-P1-IBLEAF-01-01"]);
    assert!(kinds["FewUplinks"] > 0 && !kinds.contains_key("MissingLinks"));
}

#[test]
fn who_is_asked_for_does_not_change_the_tiers() {
    let all = ibnet::read(DUMP, &Filter::default()).unwrap();
    let names: Vec<String> = all.domains(0)["A09-P1-IBLEAF-01-03"].iter().take(4).map(|name| (*name).to_owned()).collect();
    let nodes: Vec<Node> = names.iter().map(|name| node(&format!("{}.example.org", name.to_uppercase()))).collect();
    let few = all.clone().for_nodes(&nodes);
    assert_eq!(few.depth, 2);
    assert_eq!(few.hosts.len(), 4);
    for (name, asked) in names.iter().zip(&nodes) {
        assert_eq!(few.hosts[&asked.name], all.hosts[name]);
    }
    assert_eq!(kinds(&few)["NotANode"], 115);
}

#[test]
fn adapters_and_switches_are_left_out_on_request() {
    let filter = Filter { switches: vec!["*-02-03".into()], adapters: vec!["HCA-6".into()], hosts: vec!["a07-*-c01".into()] };
    let fabric = ibnet::read(DUMP, &filter).unwrap();
    assert!(!fabric.hosts.contains_key("a07-p1-dgx-03-c01"));
    assert_eq!(fabric.domains(0).len(), 8);
}

/// A fabric of three tiers as a dump: pods of racks of hosts, with some rails, and cores over all.
fn dump(pods: usize, racks: usize, hosts: usize, rails: usize) -> String {
    let mut text = String::new();
    let mut switch = |id: &str, ports: &[String]| {
        text.push_str(&format!("vendid=0x2c9\nswitchguid=0x{id}({id})\nSwitch\t64 \"S-{id}\"\t\t# \"MF0;{id}:MQM9700/U1\" enhanced port 0 lid 1 lmc 0\n"));
        ports.iter().for_each(|port| text.push_str(port));
        text.push('\n');
    };
    for pod in 0..pods {
        for rail in 0..rails {
            let up: Vec<String> = (0..2).map(|core| format!("[{}]\t\"S-core{core}\"[{}]\t\t# \"MF0;core:MQM/U1\" lid 1 4xNDR\n", core + 60, pod * rails + rail + 1)).collect();
            switch(&format!("spine{pod}x{rail}"), &up);
            for rack in 0..racks {
                let mut ports: Vec<String> = (0..hosts)
                    .map(|host| format!("[{}]\t\"H-{pod}x{rack}x{host}x{rail}\"[1](0) \t\t# \"n{pod}-{rack}-{host} mlx5_{rail}\" lid 1 4xNDR\n", host + 1))
                    .collect();
                ports.push(format!("[63]\t\"S-spine{pod}x{rail}\"[{}]\t\t# \"x\" lid 1 4xNDR\n", rack + 1));
                switch(&format!("leaf{pod}x{rack}x{rail}"), &ports);
            }
        }
    }
    (0..2).for_each(|core| switch(&format!("core{core}"), &[]));
    for pod in 0..pods {
        for rack in 0..racks {
            for host in 0..hosts {
                for rail in 0..rails {
                    text.push_str(&format!("vendid=0x2c9\nCa\t1 \"H-{pod}x{rack}x{host}x{rail}\"\t\t# \"n{pod}-{rack}-{host} mlx5_{rail}\"\n[1](0) \t\"S-leaf{pod}x{rack}x{rail}\"[{}]\t\t# lid 1 lmc 0 \"x\" lid 1 4xNDR\n\n", host + 1));
                }
            }
        }
    }
    text
}

#[test]
fn three_tiers_with_rails_come_out_as_they_were_made() {
    let fabric = ibnet::read(&dump(3, 4, 5, 4), &Filter::default()).unwrap();
    assert_eq!(fabric.depth, 3);
    let n: Vec<usize> = (0..3).map(|tier| fabric.domains(tier).len()).collect();
    assert_eq!(n, [12, 3, 1]);
    assert_eq!(fabric.findings, []);
    for (name, host) in &fabric.hosts {
        let pod = &name[1..2];
        assert!(host.tiers[0].starts_with(&format!("leaf{pod}")) && host.tiers[1].starts_with(&format!("spine{pod}")), "{name} {host:?}");
    }
    // Two fabrics, one shallower, as one input: every host has every tier.
    let small = dump(1, 2, 2, 1).replace("core", "k").replace("spine", "s").replace("leaf", "l").replace("\"n", "\"m").replace("H-", "H-m");
    let small: String = small.lines().filter(|line| !line.contains("S-k")).map(|line| format!("{line}\n")).collect();
    let both = ibnet::read(&(dump(2, 2, 2, 2) + &small), &Filter::default()).unwrap();
    assert_eq!(both.depth, 3);
    assert!(both.hosts.values().all(|host| host.tiers.len() == 3));
    assert_eq!(kinds(&both)["ShortPath"], 1);
}

#[test]
fn a_compacted_dump_is_the_same_fabric() {
    let filter = Filter { adapters: vec!["HCA-6".into()], ..Filter::default() };
    let cut = &DUMP[..DUMP.len() / 2];
    let cut = &cut[..cut.rfind("\n\n").unwrap()];
    for text in [DUMP, cut, &dump(2, 3, 4, 2)] {
        let short = ibnet::compacted(text).unwrap();
        assert_eq!(ibnet::read(&short, &filter).unwrap(), ibnet::read(text, &filter).unwrap());
        assert_eq!(ibnet::compacted(&short).unwrap(), short);
        assert!(short.len() * 2 < text.len(), "{} of {}", short.len(), text.len());
    }
    assert!(ibnet::compacted("").is_err());
}

#[test]
fn a_storage_rail_does_not_join_racks() {
    let mut text = dump(1, 3, 4, 2);
    text.push_str("vendid=0x2c9\nSwitch\t64 \"S-store\"\t\t# \"MF0;store:MQM9700/U1\" x\n");
    for rack in 0..3 {
        for host in 0..4 {
            text.push_str(&format!("[{}]\t\"H-s{rack}x{host}\"[1](0) \t\t# \"n0-{rack}-{host} mlx5_9\" lid 1\n", rack * 4 + host + 1));
        }
    }
    text.push('\n');
    for rack in 0..3 {
        for host in 0..4 {
            text.push_str(&format!("Ca\t1 \"H-s{rack}x{host}\"\t\t# \"n0-{rack}-{host} mlx5_9\"\n\n"));
        }
    }
    let fabric = ibnet::read(&text, &Filter::default()).unwrap();
    let racks: Vec<usize> = fabric.domains(0).values().map(Vec::len).collect();
    assert_eq!(racks, [4, 4, 4]);
    assert_eq!(kinds(&fabric)["SeveralGroups"], 12);
    let fabric = ibnet::read(&text, &Filter { adapters: vec!["mlx5_9".into()], ..Filter::default() }).unwrap();
    assert!(!kinds(&fabric).contains_key("SeveralGroups"));
}

#[test]
fn broken_dumps_are_refused_with_the_place() {
    let said = |text: &str| ibnet::read(text, &Filter::default()).unwrap_err().to_string();
    assert!(said("").contains("empty"));
    assert!(said("Ca\t1 \"H-1\"\t# \"dgx-gb200-n01-c1 HCA-1\"\n[1](1) \t\"S-2\"[19]").contains("no Switch record"));
    assert!(said("Switch 3 \"S-1\" # \"x\"\n[1] \"S-2\"[").contains("line 2"));
    assert!(said("[1] \"S-2\"[1]").contains("belongs to no record"));
    assert!(said("Switch 3 \"H-1\"").contains("begins with S-"));
}

#[test]
fn netq_and_its_trays() {
    let fabric = netq::read(GRAPH, &Filter::default()).unwrap();
    assert_eq!((fabric.hosts.len(), fabric.depth), (8, 2));
    assert_eq!((fabric.domains(0).len(), fabric.domains(1).len()), (2, 1));
    let trays = netq::compute_nodes(TRAYS).unwrap();
    assert_eq!(trays.hosts["node1"].accelerator.as_deref(), Some("3fbfc98b-7f95-4749-ab11-bd351a2aab3e"));
    assert!(netq::read("{}", &Filter::default()).unwrap_err().to_string().contains("not a list"));
    assert!(netq::read("[]", &Filter::default()).unwrap_err().to_string().contains("no host"));
    assert!(netq::read("[{", &Filter::default()).unwrap_err().to_string().contains("line 1"));
}

#[test]
fn clouds_say_where_their_instances_are() {
    let aws = r#"{"Instances":[
        {"InstanceId":"i-1","InstanceType":"p5.48xlarge","NetworkNodes":["nn-top","nn-mid","nn-leaf"],"CapacityBlockId":"cb-1"},
        {"InstanceId":"i-2","InstanceType":"p6-b200.48xlarge","NetworkNodes":["nn-top","nn-mid","nn-a","nn-b"]}],"NextToken":"more"}"#;
    let fabric = cloud(Cloud::Aws, aws).unwrap();
    assert_eq!(fabric.hosts["i-1"].tiers, ["nn-leaf", "nn-mid", "nn-top", "nn-top"]);
    assert_eq!((fabric.depth, fabric.hosts["i-1"].accelerator.as_deref()), (4, Some("cb-1")));
    assert!(kinds(&fabric).contains_key("MorePages"));
    let nodes = [Node { provider_id: "aws:///us-east-1a/i-1".into(), ..node("ip-10-0-0-1.ec2.internal") }];
    assert!(fabric.for_nodes(&nodes).hosts.contains_key("ip-10-0-0-1.ec2.internal"));

    let gcp = r#"[{"id":"1","name":"gpu-1","resourceStatus":{"physicalHostTopology":{"cluster":"c","block":"b","subblock":"s","host":"h"}}},{"name":"gpu-2","resourceStatus":{}}]"#;
    let fabric = cloud(Cloud::Gcp, gcp).unwrap();
    assert_eq!(fabric.hosts["gpu-1"].tiers, ["s", "b", "c"]);
    assert_eq!(kinds(&fabric)["NoNetwork"], 1);

    let oci = r#"{"data":{"items":[{"instance-id":"o1","local-block-id":"l","network-block-id":"n","hpc-island-id":"i","gpu-memory-fabric-id":"g"}]}}"#;
    let fabric = cloud(Cloud::Oci, oci).unwrap();
    assert_eq!((fabric.hosts["o1"].tiers.join(" "), fabric.hosts["o1"].accelerator.as_deref()), ("l n i".into(), Some("g")));

    let nebius = r#"{"items":[{"metadata":{"id":"x1"},"spec":{"nvl_instance_group_id":"nvl"},"status":{"infiniband_topology_path":{"path":["top","mid","leaf"]}}}]}"#;
    assert_eq!(cloud(Cloud::Nebius, nebius).unwrap().hosts["x1"].tiers, ["leaf", "mid", "top"]);
    let lambda = r#"{"data":[{"id":"l1","networkPath":[{"id":"leaf"},{"id":"top"}],"nvlink":{"domain_id":"d","clique_id":"7"}}],"page_token":""}"#;
    let fabric = cloud(Cloud::Lambda, lambda).unwrap();
    assert_eq!((fabric.hosts["l1"].tiers.join(" "), fabric.hosts["l1"].sub_domain.as_deref()), ("leaf top".into(), Some("d.7")));
    let nscale = r#"{"results":[{"instance_id":"n1","network_node_path":["top","leaf"],"block_id":"b"}]}"#;
    assert_eq!(cloud(Cloud::Nscale, nscale).unwrap().hosts["n1"].tiers, ["leaf", "top"]);
    for bad in ["", "[", "{}", "[1]", "{\"Instances\":[{}]}", "{\"Instances\":3}"] {
        assert!(cloud(Cloud::Aws, bad).is_err(), "{bad}");
    }
}

#[test]
fn a_zero_uuid_is_no_fabric() {
    let zero = "00000000-0000-0000-0000-000000000000";
    let text = format!("a: 3fbfc98b-7f95-4749-ab11-bd351a2aab3e, 1\na: 3fbfc98b-7f95-4749-ab11-bd351a2aab3e, 1\nb: {zero}, 0\nc: [N/A], [N/A]\nd: x, 1\nd: x, 2\n");
    let fabric = smi::read(&text).unwrap();
    assert_eq!(fabric.hosts.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(kinds(&fabric), BTreeMap::from([("NoFabric", 2), ("MixedFabric", 1)]));
    assert!(smi::read("no colon").is_err() && smi::read("").is_err());
}

#[test]
fn labels_are_values_that_the_api_takes() {
    // The vector of the labeller that these values have to agree with.
    assert_eq!(names::label_value("S3very-very-long-id-to-check-label-value-limits-of-63-characters"), "xf946c4acef2d5939");
    assert!(names::label_value("a:b/c").starts_with('x'));
    let fabric = slurm::read("SwitchName=s Switches=l[1-2]\nSwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n3\n").unwrap();
    let all = labels(&fabric, Keys::Current);
    assert_eq!(all["n3"], BTreeMap::from([("fabric.topograph.run/tier-0".to_owned(), "l2".to_owned()), ("fabric.topograph.run/tier-1".to_owned(), "s".to_owned())]));
    let mut have = node("n3");
    have.labels = BTreeMap::from([("fabric.topograph.run/tier-0".into(), "l2".into()), ("fabric.topograph.run/tier-2".into(), "old".into()), ("mine".into(), "x".into())]);
    let patch = &patches(&fabric, Keys::Current, &[have, node("stranger")]);
    assert_eq!(patch.len(), 1);
    assert_eq!(patch["n3"], BTreeMap::from([("fabric.topograph.run/tier-1".to_owned(), Some("s".to_owned())), ("fabric.topograph.run/tier-2".to_owned(), None)]));
    let proposal = topology::of_fabric(&fabric, Keys::Current).unwrap();
    let levels: Vec<&str> = proposal.levels.iter().map(|level| level.key.as_str()).collect();
    assert_eq!(levels, ["fabric.topograph.run/tier-0", "kubernetes.io/hostname"]);
}

#[test]
fn slurm_files_go_round() {
    let tree = "SwitchName=core Switches=s[1-2]\nSwitchName=s1 Switches=l[1-2]\nSwitchName=s2 Switches=l3\nSwitchName=l1 Nodes=n[01-03]\nSwitchName=l2 Nodes=n[08-11]\nSwitchName=l3 Nodes=m7\n";
    let fabric = slurm::read(tree).unwrap();
    let written = slurm_out::tree(&fabric);
    assert_eq!(slurm::read(&written).unwrap(), fabric);
    let yaml = serde_saphyr::to_string(&slurm_out::yaml(&fabric, &[]).unwrap()).unwrap();
    assert_eq!(slurm::read(&yaml).unwrap(), fabric);
    let said = |text: &str| slurm::read(text).unwrap_err().to_string();
    assert!(said("SwitchName=a Switches=b\nSwitchName=b Switches=a\n").contains("below itself") || said("SwitchName=a Switches=b\nSwitchName=b Switches=a,c\nSwitchName=c Nodes=n\n").contains("below itself"));
    assert!(said("SwitchName=a Switches=b\nSwitchName=b Nodes=n[1-\n").contains("line 2"));
    assert!(said("SwitchName=a Nodes=n[1-99999999999]").contains("more than"));
    assert!(said("hello world").contains("not key=value"));
    assert!(said("").contains("empty"));
    assert!(said("SwitchName=a Switches=b").contains("nowhere"));
}

#[test]
fn blocks_are_filled_up_so_that_their_number_tells_the_aggregate() {
    let mut fabric = Fabric::default();
    for (domain, n) in [("d1", 4), ("d2", 2), ("d3", 3)] {
        for at in 0..n {
            fabric.hosts.insert(format!("{domain}n{at}"), crate::Host { accelerator: Some(domain.into()), ..crate::Host::default() });
        }
    }
    let text = slurm_out::block(&fabric, &[2, 4]).unwrap();
    let names: Vec<&str> = text.lines().filter(|line| line.starts_with("BlockName")).collect();
    assert_eq!(names, ["BlockName=block001 Nodes=d1n[0-1]", "BlockName=block002 Nodes=d1n[2-3]", "BlockName=block003 Nodes=d2n[0-1]", "BlockName=block004", "BlockName=block005 Nodes=d3n[0-1]", "BlockName=block006 Nodes=d3n2"]);
    assert!(text.ends_with("BlockSizes=2,4\n"));
    let back = slurm::read(&text).unwrap();
    assert_eq!(back.hosts.len(), 9);
    for bad in [&[0][..], &[3, 5], &[4, 2], &[131_072]] {
        assert!(slurm_out::block(&fabric, bad).is_err(), "{bad:?}");
    }
    assert!(slurm_out::block(&Fabric::default(), &[]).is_err());
}

proptest! {
    #[test]
    fn lists_of_hosts_go_round(hosts in prop::collection::btree_set("[a-c]{0,2}[0-9]{1,3}|[a-z]{1,3}", 1..30)) {
        let text = hostlist::compact(hosts.iter().map(String::as_str));
        let back: std::collections::BTreeSet<String> = hostlist::expand(&text).unwrap().into_iter().collect();
        prop_assert_eq!(back, hosts);
    }

    /// Any damage to a real dump ends in an answer or an error, never in a panic.
    #[test]
    fn damaged_inputs_do_no_harm(cut in 0_usize..60_000, at in 0_usize..60_000, junk in "\\PC{0,8}") {
        let mut text: String = DUMP[..60_000].to_owned();
        text.truncate(cut.max(1));
        let at = at.min(text.len());
        text.insert_str(at, &junk);
        let _ = ibnet::read(&text, &Filter::default());
        let mut graph = GRAPH[..cut.min(GRAPH.len())].to_owned();
        graph.push_str(&junk);
        let _ = netq::read(&graph, &Filter::default());
    }

    #[test]
    fn garbage_does_no_harm(text in "\\PC{0,80}") {
        let _ = (ibnet::read(&text, &Filter::default()), slurm::read(&text), smi::read(&text), hostlist::expand(&text));
        for source in [Cloud::Aws, Cloud::Gcp, Cloud::Oci, Cloud::Nebius, Cloud::Lambda, Cloud::Nscale] {
            let _ = cloud(source, &text);
        }
    }
}
