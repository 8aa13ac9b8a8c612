//! What the chart holds that is made from the code: it is what the code says. `UPDATE=1` writes it anew.

use std::path::{Path, PathBuf};

use berth::rbac::{self, Options};
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rules of one role.
fn rules(manifests: &[Value], kind: &str) -> String {
    let role = manifests.iter().find(|object| object["kind"] == kind).unwrap();
    serde_saphyr::to_string(&role["rules"]).unwrap()
}

fn generated() -> Vec<(PathBuf, String)> {
    let options = Options {
        namespace: "berth",
        account: "berth",
        scheduler_name: "kai-scheduler",
        owners: &[],
        defaults_map: None,
        api: false,
        labels_first: false,
        read_only: false,
    };
    let labeller = rbac::labeller("berth");
    let files = root().join("charts/berth/files");
    let mut generated = vec![
        (files.join("rules.yaml"), rules(&rbac::manifests(&options), "ClusterRole")),
        (files.join("labeller-rules.yaml"), rules(&labeller, "ClusterRole")),
        (files.join("labeller-own-rules.yaml"), rules(&labeller, "Role")),
    ];
    let mut crds: Vec<PathBuf> = std::fs::read_dir(root().join("crds")).unwrap().map(|entry| entry.unwrap().path()).collect();
    crds.sort();
    for crd in crds {
        let text = std::fs::read_to_string(&crd).unwrap();
        generated.push((files.join("crds").join(crd.file_name().unwrap()), text));
    }
    generated
}

#[test]
fn rights_and_definitions_of_the_chart_are_those_of_the_code() {
    for (path, expected) in generated() {
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, expected, "{} is old; UPDATE=1 cargo test --test it chart writes it", path.display());
    }
    let crds = std::fs::read_dir(root().join("charts/berth/files/crds")).unwrap().count();
    assert_eq!(crds, std::fs::read_dir(root().join("crds")).unwrap().count(), "a definition of the chart that the code does not have");
}
