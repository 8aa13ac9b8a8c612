//! A dump of 10 000 hosts in three tiers, eight rails: parsing and grouping, against one pass over the text.
//!
//! Printed, never asserted: `cargo bench -p berth-discovery`.

#![allow(missing_docs, reason = "a program")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_discovery::sources::{Filter, ibnet};

const PODS: usize = 10;
const RACKS: usize = 50;
const HOSTS: usize = 20;
const RAILS: usize = 8;

fn device(text: &mut String, kind: &str, id: &str, description: &str, ports: &[(usize, String, usize)]) {
    let _ = writeln!(text, "vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{id}\n{kind}\t64 \"{id}\"\t\t# \"{description}\" enhanced port 0 lid 1 lmc 0");
    for (port, peer, far) in ports {
        let _ = writeln!(text, "[{port}]\t\"{peer}\"[{far}]\t\t# \"somewhere\" lid 1 4xNDR");
    }
    text.push('\n');
}

/// Leaves by pod, rack and rail; spines by pod and rail; 32 cores over all spines.
fn dump() -> String {
    let mut text = String::new();
    for pod in 0..PODS {
        for rail in 0..RAILS {
            let up = (0..32).map(|core| (core + 1, format!("S-core{core:02}"), pod * RAILS + rail + 1)).collect::<Vec<_>>();
            device(&mut text, "Switch", &format!("S-spine{pod:02}x{rail}"), &format!("MF0;spine-{pod:02}-{rail}:MQM9700/U1"), &up);
            for rack in 0..RACKS {
                let host = |host: usize| (host + 1, format!("H-{pod:02}x{rack:02}x{host:02}x{rail}"), 1);
                let mut ports: Vec<_> = (0..HOSTS).map(host).collect();
                ports.push((63, format!("S-spine{pod:02}x{rail}"), rack + 1));
                device(&mut text, "Switch", &format!("S-leaf{pod:02}x{rack:02}x{rail}"), &format!("MF0;leaf-{pod:02}-{rack:02}-{rail}:MQM9700/U1"), &ports);
            }
        }
    }
    (0..32).for_each(|core| device(&mut text, "Switch", &format!("S-core{core:02}"), &format!("MF0;core-{core:02}:MQM9700/U1"), &[]));
    for (pod, rack, host, rail) in (0..PODS * RACKS * HOSTS * RAILS).map(|n| (n / (RACKS * HOSTS * RAILS), n / (HOSTS * RAILS) % RACKS, n / RAILS % HOSTS, n % RAILS)) {
        let leaf = (1, format!("S-leaf{pod:02}x{rack:02}x{rail}"), host + 1);
        device(&mut text, "Ca", &format!("H-{pod:02}x{rack:02}x{host:02}x{rail}"), &format!("n{pod:02}-{rack:02}-{host:02} mlx5_{rail}"), &[leaf]);
    }
    text
}

fn median(mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..5)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[2]
}

fn main() {
    let text = dump();
    let pass = median(|| _ = black_box(text.bytes().fold(0_u64, |sum, byte| sum.rotate_left(1) ^ u64::from(byte))));
    let mut fabric = None;
    let read = median(|| fabric = ibnet::read(&text, &Filter::default()).ok());
    let fabric = fabric.unwrap_or_default();
    let domains: Vec<String> = (0..fabric.depth).map(|tier| fabric.domains(tier).len().to_string()).collect();
    println!("dump of {} hosts, {} MB: {} domains, {} findings", fabric.hosts.len(), text.len() / 1_000_000, domains.join(" / "), fabric.findings.len());
    // The most that this program ever held, the text itself included; Linux tells.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    println!("most memory: {} MB", peak.map_or_else(|| "unknown".to_owned(), |kb| (kb / 1000).to_string()));
    println!("one pass over the text {:.1} ms, parsed and grouped {:.0} ms: {:.0} passes", pass.as_secs_f64() * 1e3, read.as_secs_f64() * 1e3, read.as_secs_f64() / pass.as_secs_f64());
}
