//! `berth snapshot` of files, and KAI Scheduler's archive.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::{Value, json};

use super::{berth, path, stderr, stdout};

pub(super) fn temporary(name: &str) -> String {
    path("target").join(format!("snapshot-{name}-{}", std::process::id())).display().to_string()
}

#[test]
fn a_redacted_snapshot_decides_as_the_input_did() {
    for input in ["examples/inference-roles", "examples/compact"] {
        let file = temporary(&format!("{}.json", input.replace('/', "-")));
        let output = berth(&["snapshot", "--redact", "-o", &file, input]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let summary = |paths: &[&str]| {
            let mut arguments = vec!["simulate", "-o", "json"];
            arguments.extend(paths);
            serde_json::from_str::<Value>(&stdout(&berth(&arguments))).unwrap()["summary"].clone()
        };
        assert_eq!(summary(&[&file]), summary(&[input]), "{input}");
        std::fs::remove_file(&file).unwrap();
    }
}

/// A zip archive of one file.
pub(super) fn zip(name: &str, text: &str) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    let packed = encoder.finish().unwrap();
    let header = |at: u32| {
        let mut bytes = Vec::new();
        bytes.extend([20_u16, 0, 8, 0, 0].into_iter().flat_map(u16::to_le_bytes));
        bytes.extend([0_u32, packed.len() as u32, text.len() as u32].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend([name.len() as u16, 0].into_iter().flat_map(u16::to_le_bytes));
        if at != u32::MAX {
            bytes.extend([0_u16; 5].into_iter().flat_map(u16::to_le_bytes));
            bytes.extend(at.to_le_bytes());
        }
        bytes.extend(name.as_bytes());
        bytes
    };
    let mut archive = b"PK\x03\x04".to_vec();
    archive.extend(header(u32::MAX));
    archive.extend(&packed);
    let start = archive.len() as u32;
    archive.extend(b"PK\x01\x02\x14\x00");
    archive.extend(header(0));
    let size = archive.len() as u32 - start;
    archive.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    archive.extend([size, start].into_iter().flat_map(u32::to_le_bytes));
    archive.extend([0, 0]);
    archive
}

#[test]
fn kais_archive_is_read_as_it_comes() {
    let pod = |name: &str, phase: &str| {
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": {"pod-group-name": "pg"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 4}}}]},
            "status": {"phase": phase},
        })
    };
    let snapshot = json!({
        "config": {}, "schedulerParams": {},
        "rawObjects": {
            "nodes": [{"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "9"}}}],
            "pods": [pod("a", "Pending"), pod("b", "Pending")],
            "podGroups": [{"metadata": {"name": "pg", "namespace": "default", "uid": "pg"}, "spec": {"minMember": 2, "queue": "q"}}],
            "queues": [{"metadata": {"name": "q", "uid": "q"}, "spec": {"resources": {"gpu": {"quota": -1}, "cpu": {"limit": -1}, "memory": {"limit": -1}}}}],
            "bindRequests": [{"metadata": {"name": "a", "namespace": "default"}, "spec": {"podName": "a", "selectedNode": "n"}}],
        },
    });
    let file = temporary("kai.zip");
    std::fs::write(&file, zip("snapshot.json", &snapshot.to_string())).unwrap();
    let result: Value = serde_json::from_str(&stdout(&berth(&["simulate", "-o", "json", &file]))).unwrap();
    let states: Vec<(&str, &str)> =
        result["pods"].as_array().unwrap().iter().map(|pod| (pod["name"].as_str().unwrap(), pod["state"].as_str().unwrap())).collect();
    // A queue without limits takes nothing: the second pod says so.
    assert_eq!(states, [("a", "Running"), ("b", "Pending")], "{result}");
    let explained = stdout(&berth(&["explain", "PodGroup/pg", &file]));
    assert!(explained.contains("queue q may use 0 GPUs") && explained.contains("- raise the gpu limit of queue q to 8"), "{explained}");
    let bytes = std::fs::read(&file).unwrap();
    for cut in [5, 40, bytes.len() - 10] {
        std::fs::write(&file, &bytes[..cut]).unwrap();
        let output = berth(&["simulate", &file]);
        assert!(output.status.code() == Some(2) && stderr(&output).contains(&file), "{}", stderr(&output));
    }
    std::fs::remove_file(&file).unwrap();
}
