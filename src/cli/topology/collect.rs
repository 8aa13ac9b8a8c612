//! `berth topology collect`: a dump of `ibnetdiscover` into a ConfigMap; the writing half of `berth generate collector`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use berth_discovery::sources::{Filter, ibnet};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::super::YES;
use super::super::connect::Connection;
use crate::collector::KEY;
use crate::simulate::input::read_text;

/// Bytes that a ConfigMap holds, with some room for its name and labels.
const MOST: usize = 1_000_000;

/// Arguments of `berth topology collect`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What ibnetdiscover printed, - for standard input.
    #[arg(long, value_name = "FILE", env = "BERTH_DUMP")]
    dump: PathBuf,
    /// The ConfigMap.
    #[arg(long, value_name = "NAME", default_value = "berth-fabric", env = "BERTH_CONFIG_MAP")]
    config_map: String,
    /// Its namespace.
    #[arg(short, long, default_value = "berth", env = "BERTH_NAMESPACE")]
    namespace: String,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the command. What can't be read is not written: the dump that is there stays.
pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    let text = read_text(&arguments.dump)?;
    let file = || arguments.dump.display().to_string();
    let fabric = ibnet::read(&text, &Filter::default()).with_context(file)?;
    let packed = packed(&ibnet::compacted(&text).with_context(file)?)?;
    let size = packed.len();
    ensure!(size <= MOST, "the dump has {size} bytes when it is packed, and a ConfigMap holds {MOST}: keep it in a volume instead");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": arguments.config_map },
        "binaryData": { KEY: ByteString(packed) },
    });
    arguments.connection.block_on(async |client| {
        let api: Api<ConfigMap> = Api::namespaced(client, &arguments.namespace);
        let patch = Patch::Apply(&object);
        api.patch(&arguments.config_map, &PatchParams::apply("berth-collector").force(), &patch).await.context("writing the ConfigMap")
    })?;
    writeln!(out, "ConfigMap {}/{}: {} hosts, {} tiers, {size} bytes.", arguments.namespace, arguments.config_map, fabric.hosts.len(), fabric.depth)?;
    Ok(YES)
}

fn packed(text: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}
