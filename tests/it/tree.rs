//! `berth tree`: text, JSON, a drawing and the page.

use serde_json::Value;

use super::{berth, stderr, stdout};

fn tree(arguments: &[&str]) -> String {
    let mut all = vec!["tree", "examples/pytorch-segments"];
    all.extend(arguments);
    let output = berth(&all);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn every_domain_has_a_line_and_sums_are_right() {
    let text = tree(&[]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let value: Value = serde_json::from_str(&tree(&["-o", "json"])).unwrap();
    fn check(place: &Value) -> i64 {
        let of = |key: &str| place[key].as_i64().unwrap();
        assert_eq!(of("total"), of("free") + of("used") + of("reserved") + of("stranded"), "{place}");
        let below = place["domains"].as_array().unwrap();
        if !below.is_empty() {
            assert_eq!(below.iter().map(check).sum::<i64>(), of("total"));
        }
        of("total")
    }
    assert!(check(&value["root"]) > 0);
    assert!(value["root"]["used"].as_i64().unwrap() > 0, "{value}");
    let with_nodes = tree(&["--nodes"]);
    assert!(with_nodes.lines().count() > text.lines().count());
    assert_eq!(tree(&["--depth", "0"]).lines().count(), 1);
}

#[test]
fn the_drawing_and_the_page_stand_alone() {
    let svg = tree(&["-o", "svg"]);
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>") && svg.contains("<title>"), "{svg}");
    let page = tree(&["-o", "html"]);
    assert!(page.starts_with("<!doctype html>") && page.contains("\"gangs\":[{"), "{}", &page[..200]);
    assert!(!page.contains("/*DATA*/"));
    let output = berth(&["tree", "examples/pytorch-segments", "--topology", "none"]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("there is no topology none; topologies: "), "{}", stderr(&output));
}
