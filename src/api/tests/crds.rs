//! `crds/` holds what the types say. `UPDATE=1` rewrites it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use berth_api::crds::{crds, crds_yaml};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds")
}

#[test]
fn the_folder_is_fresh() {
    let files = crds_yaml().unwrap();
    if env::var_os("UPDATE").is_some() {
        fs::create_dir_all(folder()).unwrap();
        for (name, yaml) in &files {
            fs::write(folder().join(name), yaml).unwrap();
        }
    }
    for (name, yaml) in &files {
        let stored = fs::read_to_string(folder().join(name)).unwrap_or_default();
        assert!(
            stored == *yaml,
            "crds/{name} is stale; run the test with UPDATE=1"
        );
    }
    let expected: BTreeSet<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
    let entries = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(entries.collect::<BTreeSet<_>>(), expected);
}

#[test]
fn yaml_reads_back_as_the_same_definition() {
    for ((_, crd), (name, yaml)) in crds().into_iter().zip(crds_yaml().unwrap()) {
        let read: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(read, serde_json::to_value(&crd).unwrap(), "{name}");
    }
}

/// The API server refuses schemas with references, and rules over lists without a bound.
#[test]
fn schemas_are_structural_and_bounded() {
    for (name, crd) in crds() {
        check_schema(
            name,
            "",
            &serde_json::to_value(&crd).unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        );
    }
}

fn check_schema(file: &str, path: &str, schema: &Value) {
    for forbidden in [
        "$ref",
        "$defs",
        "definitions",
        "const",
        "if",
        "not",
        "anyOf",
        "oneOf",
        "allOf",
        "nullable",
    ] {
        assert!(
            schema.get(forbidden).is_none(),
            "{file}: {path} has {forbidden}"
        );
    }
    let kind = schema["type"].as_str();
    assert!(kind.is_some(), "{file}: {path} has no type");
    if kind == Some("array") {
        assert!(
            schema["maxItems"].is_u64(),
            "{file}: {path} has no maxItems"
        );
        check_schema(file, &format!("{path}[]"), &schema["items"]);
    }
    for (field, child) in schema["properties"].as_object().into_iter().flatten() {
        assert!(
            child["description"].is_string() || path.is_empty(),
            "{file}: {path}.{field} is not described"
        );
        check_schema(file, &format!("{path}.{field}"), child);
    }
}
