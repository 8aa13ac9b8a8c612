use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::out::labels::{Keys, LINK_HEALTH, labels};
use crate::sources::{measure, slurm};
use crate::weights::SLOW_BELOW;
use crate::{Fabric, Node, fabric::Host};

/// Racks of four hosts r1 to r8 under two spines.
fn racks() -> Fabric {
    let mut text = "SwitchName=core Switches=s[1-2]\nSwitchName=s1 Switches=r[1-4]\nSwitchName=s2 Switches=r[5-8]\n".to_owned();
    (1..=8).for_each(|rack| text += &format!("SwitchName=r{rack} Nodes=r{rack}n[1-4]\n"));
    slurm::read(&text).unwrap()
}

/// Every pair of hosts with its figure.
fn pairs(figure: impl Fn(&str, &str) -> u64) -> String {
    let hosts: Vec<String> = racks().hosts.into_keys().collect();
    let mut text = "from,to,gbps\n".to_owned();
    for (at, a) in hosts.iter().enumerate() {
        hosts[at + 1..].iter().for_each(|b| text += &format!("{a},{b},{}\n", figure(a, b)));
    }
    text
}

fn weighed(text: &str) -> Fabric {
    racks().join(measure::list(text).unwrap()).weighed(&[], SLOW_BELOW)
}

fn named<'a>(fabric: &'a Fabric, kind: &str) -> Vec<&'a str> {
    fabric.findings.iter().filter(|finding| finding.kind == kind).map(|finding| finding.subject.as_str()).collect()
}

const SLOW: [&str; 3] = ["SlowDomain", "SlowUplinks", "SlowHost"];

/// Farther hosts are slower, in a sound network too.
fn sound(a: &str, b: &str) -> u64 {
    if a[..2] == b[..2] { 400 } else if (a[1..2] <= *"4") == (b[1..2] <= *"4") { 300 } else { 100 }
}

#[test]
fn a_sound_network_has_nothing_slow_however_far_hosts_are() {
    let fabric = weighed(&pairs(sound));
    assert!(SLOW.iter().all(|kind| named(&fabric, kind).is_empty()), "{:?}", fabric.findings);
    assert!(fabric.hosts.values().all(|host| host.health == Some(100)));
    assert_eq!((fabric.weights.len(), fabric.weights[0].inside, fabric.weights[0].out), (8 + 2 + 1, Some(100), Some(100)));
}

#[test]
fn a_slow_rack_is_named_and_its_hosts_are_not_blamed() {
    let fabric = weighed(&pairs(|a, b| if a.starts_with("r7") && b.starts_with("r7") { 160 } else { sound(a, b) }));
    assert_eq!((named(&fabric, "SlowDomain"), named(&fabric, "SlowUplinks").len(), named(&fabric, "SlowHost").len()), (vec!["r7"], 0, 0));
    let said = &fabric.findings.iter().find(|finding| finding.kind == "SlowDomain").unwrap().message;
    assert!(said.starts_with("is at 40 % of its peers of tier 0"), "{said}");
    let labels = labels(&fabric, Keys::Current);
    assert_eq!((labels["r7n1"][LINK_HEALTH].as_str(), labels["r6n1"][LINK_HEALTH].as_str()), ("40", "100"));
    // Slow cables to the spine: the rack is sound inside.
    let fabric = weighed(&pairs(|a, b| if a.starts_with("r7") != b.starts_with("r7") { sound(a, b) / 3 } else { sound(a, b) }));
    assert_eq!((named(&fabric, "SlowDomain").len(), named(&fabric, "SlowUplinks"), named(&fabric, "SlowHost").len()), (0, vec!["r7"], 0));
}

#[test]
fn a_slow_host_is_named_and_its_partners_are_not_blamed() {
    let fabric = weighed(&pairs(|a, b| if a == "r2n3" || b == "r2n3" { sound(a, b) / 2 } else { sound(a, b) }));
    assert_eq!((named(&fabric, "SlowHost"), named(&fabric, "SlowDomain").len(), named(&fabric, "SlowUplinks").len()), (vec!["r2n3"], 0, 0));
    let healths: Vec<Option<u64>> = ["r2n3", "r2n1"].iter().map(|host| fabric.hosts[*host].health).collect();
    assert_eq!(healths, [Some(50), Some(100)]);
}

#[test]
fn domains_are_measured_as_a_whole_and_what_is_not_known_is_told() {
    let fabric = weighed("r1 100\nr2 100\nr7 40 # cables\nr3 96\nnowhere 7\nr1n1 else 5\n");
    assert_eq!(named(&fabric, "SlowDomain"), ["r7"]);
    assert_eq!((fabric.hosts["r7n2"].health, fabric.hosts["r3n1"].health, fabric.hosts["r8n1"].health), (Some(40), Some(90), None));
    let unknown = fabric.findings.iter().find(|finding| finding.kind == "UnknownEnd").unwrap();
    assert!(unknown.message.starts_with("2 measurements name what is no host and no domain of the fabric (else, nowhere)"), "{unknown:?}");
    // One alone has no peers.
    assert_eq!(weighed("r1 100\n").hosts["r1n1"].health, None);
}

#[test]
fn runs_of_nccl_tests_are_read_as_launchers_print_them() {
    let run = |hosts: &[&str], figure: &str, prefix: &str| {
        let mut text = format!("{prefix}# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor)\n{prefix}# Using devices\n");
        for (rank, host) in hosts.iter().enumerate() {
            text += &format!("{prefix}#  Rank {rank:>2} Group  0 Pid  188{rank} on   {host} device  0 [0x8d] NVIDIA H100 80GB HBM3\n");
        }
        text += &format!("{prefix}           8             2     float     sum      -1    20.11    0.00    0.01      0    19.59    0.00    0.00      0\n");
        text += "r1n1:15718:15718 [0] NCCL INFO comm 0x576eb5d4d740 rank 1 nranks 2 cudaDev 0 busId 2000 - Destroy COMPLETE\n";
        text += &format!("{prefix}  1073741824     268435456     float     sum      -1   379615    2.83  {figure}    N/A   380115    2.82    2.82    N/A\n");
        text + &format!("{prefix}# Out of bounds values : 0 OK\n{prefix}# Avg bus bandwidth    : 2.61937 \n#\n")
    };
    let text = run(&["r1n1", "r1n2"], "48.25", "") + &run(&["r2n1", "r2n1", "r2n2"], "50", " 0: ") + &run(&["r7n1", "r7n2"], "19.3", "");
    let read = measure::nccl(&text).unwrap();
    let figures: Vec<(Vec<&str>, u64)> = read.measured.iter().map(|one| (one.ends.iter().map(String::as_str).collect(), one.value)).collect();
    assert_eq!(figures, [(vec!["r1n1", "r1n2"], 48_250), (vec!["r2n1", "r2n2"], 50_000), (vec!["r7n1", "r7n2"], 19_300)]);
    let fabric = racks().join(read).weighed(&[], SLOW_BELOW);
    assert_eq!(named(&fabric, "SlowDomain"), ["r7"]);
    // The columns of older versions, an average with its unit, and two runs that know nothing of each other.
    let older = "#   Rank  0 Pid   1320 on a device  0 [0x00] V100\n 1073741824 268435456 float sum 19340 55.52 104.10 5e-07 19335 55.53 104.13 5e-07\n# Avg bus bandwidth : 1\n";
    assert_eq!(measure::nccl(older).unwrap().measured[0].value, 104_100);
    assert_eq!(measure::nccl("# Rank 0 Pid 1 on a device 0 [0] x\n# Avg bus bandwidth    : 31.42 GB/s\n").unwrap().measured[0].value, 31_420);
    let twice = "# Rank 0 Pid 1 on a device 0 [0] x\n# Rank 0 Pid 2 on b device 0 [0] x\n# Avg bus bandwidth : 3\n# Avg bus bandwidth : 3\n";
    let twice = measure::nccl(twice).unwrap();
    assert_eq!((twice.measured.len(), named(&twice, "NotOneRun").len(), named(&twice, "NoHosts").len()), (0, 1, 1));
    assert!(measure::nccl("nothing").unwrap_err().to_string().contains("Avg bus bandwidth"));
}

#[test]
fn results_of_iperf_are_pairs() {
    let one = |client: &str, server: &str, rate: &str| {
        format!(r#"{{"start":{{"connected":[{{"local_host":"10.0.0.1","remote_host":"10.0.0.2"}}],"system_info":"Linux {client} 5.4.0 x86_64","connecting_to":{{"host":"{server}","port":5201}}}},"end":{{"sum_sent":{{"bits_per_second":1}},"sum_received":{{"bits_per_second":{rate}}}}}}}"#)
    };
    let text = format!("{}\n[{},{}]\n{}", one("r1n1", "r1n2", "94182986305.327252"), one("r2n1", "r2n2", "9.4e10"), one("r7n1", "r7n2", "37600000000"), r#"{"error":"unable to connect"}"#);
    let read = measure::iperf(&text).unwrap();
    let values: Vec<u64> = read.measured.iter().map(|one| one.value).collect();
    assert_eq!(values, [94_182_986, 94_000_000, 37_600_000]);
    assert_eq!(read.findings.iter().map(|finding| finding.message.as_str()).collect::<Vec<_>>(), ["unable to connect"]);
    assert_eq!(named(&racks().join(read).weighed(&[], SLOW_BELOW), "SlowDomain"), ["r7"]);
    assert!(measure::iperf("").is_err() && measure::iperf("{").unwrap_err().to_string().contains("document 1"));
}

#[test]
fn measurements_name_nodes_where_the_fabric_has_instances() {
    let mut fabric = Fabric { depth: 1, ..Fabric::default() };
    for at in 1..=4 {
        fabric.hosts.insert(format!("i-{at}"), Host { tiers: vec![format!("l{}", (at + 1) / 2)], ..Host::default() });
    }
    let nodes: Vec<Node> = (1..=4).map(|at| Node { name: format!("n{at}.internal"), provider_id: format!("aws:///z/i-{at}"), ..Node::default() }).collect();
    let fabric = fabric.join(measure::list("n1 n2 100\nn3.internal N4 50\n").unwrap()).weighed(&nodes, SLOW_BELOW).for_nodes(&nodes);
    assert_eq!(named(&fabric, "SlowDomain"), ["l2"]);
    assert_eq!((fabric.hosts["n3.internal"].health, fabric.weights.len()), (Some(50), 2));
}

#[test]
fn numbers_are_read_to_the_thousandth() {
    for (text, wanted) in [
        ("38.2", Some(38_200)),
        ("0", Some(0)),
        (".5", Some(500)),
        ("5.", Some(5_000)),
        ("9.41e9", Some(9_410_000_000_000)),
        ("1e-3", Some(1)),
        ("1234.56789", Some(1_234_567)),
        ("18446744073709551615", None),
        ("", None),
        (".", None),
        ("-1", None),
        ("1e99", None),
        ("N/A", None),
        ("1.2.3", None),
        ("e5", None),
    ] {
        assert_eq!(measure::thousandths(text), wanted, "{text}");
    }
    for bad in ["", "# nothing", "a b\nc d", "a b c 5", "a 5\nb x"] {
        assert!(measure::list(bad).is_err(), "{bad}");
    }
}

proptest! {
    /// Who is measured, how often and in which order changes nothing but what was measured; the unit does not matter.
    #[test]
    fn weights_do_not_depend_on_order_or_unit(figures in prop::collection::vec(("r[1-8]n[1-5]", "r[1-8](n[1-4])?", 1_u64..1000), 1..60)) {
        let text = |factor: u64| figures.iter().map(|(a, b, figure)| format!("{a} {b} {}\n", figure * factor)).collect::<String>();
        let fabric = weighed(&text(1));
        let lines: Vec<String> = text(8).lines().rev().map(ToOwned::to_owned).collect();
        let other = weighed(&lines.join("\n"));
        prop_assert_eq!(&fabric.weights, &other.weights);
        prop_assert_eq!(&fabric.hosts, &other.hosts);
        let healths: BTreeMap<&String, u64> = fabric.hosts.iter().filter_map(|(name, host)| Some((name, host.health?))).collect();
        prop_assert!(healths.values().all(|health| *health <= 100 && health % 10 == 0));
    }

    #[test]
    fn garbage_is_no_measurement(text in "\\PC{0,120}") {
        let _ = (measure::nccl(&text), measure::iperf(&text), measure::list(&text), measure::thousandths(&text));
    }
}
