//! Every file of tests/scenarios holds.

use berth::simulate::input::read_paths;
use berth::simulate::{Options, scenario};

use super::path;

#[test]
fn every_scenario_holds() {
    let items = read_paths(&[path("tests/scenarios")]).unwrap();
    assert!(items.len() > 30, "only {} scenarios were found", items.len());
    let mut failures = Vec::new();
    for item in &items {
        match scenario::run(item, &Options::standard()) {
            Ok(run) => failures.extend(run.unmet.map(|unmet| format!("{}: {unmet}", item.place.file))),
            Err(error) => failures.push(error.to_string()),
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} scenarios fail:\n{}",
        failures.len(),
        items.len(),
        failures.join("\n")
    );
}
