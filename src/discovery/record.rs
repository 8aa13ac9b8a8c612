//! A discovery as one small document, so that labels can be compared with it later: what `berth topology run` keeps in its
//! ConfigMap. Nodes of one place are one entry, written as a list of hosts, so that ten thousand of them fit.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use crate::error::DiscoveryError;
use crate::fabric::{Fabric, Host};
use crate::hostlist::{compact, expand};
use crate::out::labels::Keys;

const SOURCE: &str = "discovery";

/// The most tiers of a record: more than any network has, and few enough that a hostile one costs nothing.
const MOST_TIERS: usize = 64;

/// The document. Hosts are nodes of a cluster by now: their names have no comma and no bracket.
#[must_use]
pub fn write(fabric: &Fabric, keys: Keys) -> Value {
    let mut places: BTreeMap<(&[String], Option<&str>, Option<&str>, Option<u64>), Vec<&str>> = BTreeMap::new();
    for (name, host) in &fabric.hosts {
        places.entry((&host.tiers, host.accelerator.as_deref(), host.sub_domain.as_deref(), host.health)).or_default().push(name);
    }
    let place = |((tiers, accelerator, sub_domain, health), nodes): ((&[String], Option<&str>, Option<&str>, Option<u64>), Vec<&str>)| {
        let mut place = Map::new();
        if !tiers.is_empty() {
            place.insert("tiers".into(), json!(tiers));
        }
        for (key, value) in [("accelerator", accelerator), ("subDomain", sub_domain)] {
            value.map(|value| place.insert(key.into(), value.into()));
        }
        health.map(|health| place.insert("health".into(), health.into()));
        place.insert("nodes".into(), compact(nodes).into());
        Value::Object(place)
    };
    json!({ "keys": keys.name(), "depth": fabric.depth, "places": places.into_iter().map(place).collect::<Vec<_>>() })
}

/// The last discovery, where `berth topology run` keeps it: in its ConfigMap. `None` when this one has none.
#[must_use]
pub fn of_config_map(map: &Value) -> Option<Result<(Fabric, Keys), DiscoveryError>> {
    let text = map.get("data").and_then(|data| data.get("discovery.json")).and_then(Value::as_str)?;
    Some(read(text))
}

/// Reads it back.
///
/// # Errors
///
/// Not a record, or one in which a node stands twice.
pub fn read(text: &str) -> Result<(Fabric, Keys), DiscoveryError> {
    let value = crate::sources::json(SOURCE, text)?;
    let wrong = |place: String, message: &str| DiscoveryError::new(SOURCE, place, message);
    let keys = value.get("keys").and_then(Value::as_str).and_then(Keys::named);
    let keys = keys.ok_or_else(|| wrong("keys".into(), "allowed are current, leaf and block"))?;
    let depth = value.get("depth").and_then(Value::as_u64).and_then(|depth| usize::try_from(depth).ok()).filter(|depth| *depth <= MOST_TIERS);
    let depth = depth.ok_or_else(|| wrong("depth".into(), "the number of tiers, at most 64"))?;
    let places = value.get("places").and_then(Value::as_array).ok_or_else(|| wrong("places".into(), "missing or not a list"))?;
    let mut fabric = Fabric { depth, ..Fabric::default() };
    for (at, place) in places.iter().enumerate() {
        let text = |key: &str| place.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
        let tiers: Vec<String> = place.get("tiers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect();
        if !tiers.is_empty() && tiers.len() != depth {
            return Err(wrong(format!("places[{at}].tiers"), "as many as depth says, or none"));
        }
        let host = Host { tiers, accelerator: text("accelerator"), sub_domain: text("subDomain"), health: place.get("health").and_then(Value::as_u64) };
        let nodes = text("nodes").ok_or_else(|| wrong(format!("places[{at}].nodes"), "missing or not text"))?;
        for node in expand(&nodes).map_err(|message| wrong(format!("places[{at}].nodes"), &message))? {
            if fabric.hosts.insert(node.clone(), host.clone()).is_some() {
                return Err(wrong(format!("places[{at}].nodes"), &format!("node {node} stands in two places")));
            }
        }
    }
    Ok((fabric, keys))
}
