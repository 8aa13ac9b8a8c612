//! Host ports, as plugins/nodeports of kube-scheduler has them: no address and `0.0.0.0` are
//! every address, `::` is one address among others.

use crate::facts::HostPort;
use crate::outcome::Rule;
use crate::rooms::Shape;
use crate::world::model::Room;

/// True when two host ports cannot be on one node.
#[must_use]
pub fn ports_conflict(a: &HostPort, b: &HostPort) -> bool {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    a.port == b.port
        && a.protocol == b.protocol
        && (any(&a.ip) || any(&b.ip) || a.ip == b.ip)
}

/// One copy where the ports are free: two copies would want the same ones.
pub(super) fn slots(room: &Room, shape: &Shape) -> u32 {
    if shape.facts.host_ports.is_empty() {
        return u32::MAX;
    }
    u32::from(shortage(room, shape).is_none())
}

/// The first port wanted that is taken.
pub(super) fn shortage(room: &Room, shape: &Shape) -> Option<Rule> {
    let ports = &shape.facts.host_ports;
    let taken = ports.iter().find(|wanted| room.ports.iter().any(|used| ports_conflict(used, wanted)));
    taken.map(|port| Rule::HostPort(port.port))
}
