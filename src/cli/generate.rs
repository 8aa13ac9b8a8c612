//! `berth generate`: files that are made from the code.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use berth_api::keys;
use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};
use clap_complete::Shell;
use serde_json::Value;

use super::YES;
use crate::{collector, rbac};
use crate::telemetry::{Metrics, TopologyMetrics, metrics_page};

/// Arguments of `berth generate`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The custom resource definitions: PodGroup, Queue and Topology.
    Crds {
        /// Write one file per definition into this folder; without it all go to standard output.
        #[arg(long, value_name = "DIR", env = "BERTH_OUT")]
        out: Option<PathBuf>,
    },
    /// Completions of the command line for a shell, to be read by it at its start.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
        /// The name that is completed: berth, or kubectl-berth for the plugin.
        #[arg(long, value_name = "NAME", env = "BERTH_NAME", default_value = "berth")]
        name: String,
    },
    /// Manual pages: one per command.
    Man {
        /// Write one file per command into this folder; without it the page of berth itself goes to standard output.
        #[arg(long, value_name = "DIR", env = "BERTH_OUT")]
        out: Option<PathBuf>,
    },
    /// A page about every metric of `berth run` and `berth topology run`.
    MetricsDocs,
    /// A collector of an InfiniBand fabric: a CronJob that runs ibnetdiscover and writes its dump into one ConfigMap.
    Collector {
        /// Namespace of everything.
        #[arg(long, short, env = "BERTH_NAMESPACE", default_value = "berth")]
        namespace: String,
        /// Name of the CronJob and of its service account: one for each fabric.
        #[arg(long, env = "BERTH_NAME", default_value = "berth-collector")]
        name: String,
        /// The ConfigMap.
        #[arg(long, value_name = "NAME", env = "BERTH_CONFIG_MAP", default_value = "berth-fabric")]
        config_map: String,
        /// Image with a shell and ibnetdiscover (infiniband-diags).
        #[arg(long, env = "BERTH_TOOLS_IMAGE")]
        tools_image: String,
        /// Image whose entry point is berth.
        #[arg(long, env = "BERTH_IMAGE")]
        image: String,
        /// When, as cron writes it.
        #[arg(long, env = "BERTH_SCHEDULE", default_value = "*/15 * * * *")]
        schedule: String,
        /// Label of the nodes that are on the fabric; may be given again.
        #[arg(short = 'l', long, value_name = "KEY=VALUE", env = "BERTH_SELECTOR", value_delimiter = ',', value_parser = super::topology::pair)]
        node_selector: Vec<(String, String)>,
        /// The adapter that is on the fabric, and its port, where the first one is not: mlx5_4 or mlx5_4:1.
        #[arg(long, value_name = "ADAPTER[:PORT]", env = "BERTH_ADAPTER")]
        adapter: Option<String>,
    },
    /// The rights that `berth run` needs: service account, roles and their bindings.
    Rbac {
        /// Namespace of the service account, and of the Lease.
        #[arg(long, short, env = "BERTH_NAMESPACE", default_value = "berth")]
        namespace: String,
        /// Name of the service account and of its roles.
        #[arg(long, env = "BERTH_SERVICE_ACCOUNT", default_value = "berth")]
        service_account: String,
        /// The `--scheduler-name` of `berth run`: the Lease is named after it.
        #[arg(long, env = "BERTH_SCHEDULER_NAME", default_value = keys::SCHEDULER_NAME)]
        scheduler_name: String,
        /// One more kind that owns pods, such as jobsets.jobset.x-k8s.io; may be given again.
        #[arg(long, value_name = "PLURAL.GROUP", env = "BERTH_OWNER", value_delimiter = ',')]
        owner: Vec<String>,
        /// The `--default-priorities-configmap-name` of `berth run`.
        #[arg(long, env = "BERTH_DEFAULT_PRIORITIES_CONFIGMAP_NAME", requires = "default_priorities_configmap_namespace")]
        default_priorities_configmap_name: Option<String>,
        /// The `--default-priorities-configmap-namespace` of `berth run`.
        #[arg(long, env = "BERTH_DEFAULT_PRIORITIES_CONFIGMAP_NAMESPACE", requires = "default_priorities_configmap_name")]
        default_priorities_configmap_namespace: Option<String>,
        /// For `berth run --api-address`: who asks is reviewed.
        #[arg(long, env = "BERTH_API", value_parser = FalseyValueParser::new())]
        api: bool,
        /// For an API server of version 1.34, where pods are labelled before they are bound.
        #[arg(long, env = "BERTH_LABELS_FIRST")]
        labels_first: bool,
        /// For `berth run --dry-run`, which writes nothing.
        #[arg(long, env = "BERTH_READ_ONLY", value_parser = FalseyValueParser::new())]
        read_only: bool,
    },
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<u8> {
    match &arguments.what {
        What::Crds { out: folder } => crds(folder.as_deref(), out),
        What::Completions { shell, name } => {
            clap_complete::generate(*shell, &mut super::command(), name, out);
            Ok(YES)
        }
        What::Man { out: None } => {
            clap_mangen::Man::new(super::command()).render(&mut &mut *out)?;
            Ok(YES)
        }
        What::Man { out: Some(folder) } => {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            clap_mangen::generate_to(super::command(), folder).with_context(|| folder.display().to_string())?;
            Ok(YES)
        }
        What::MetricsDocs => {
            let metrics = Metrics::new().context("making the metrics")?;
            let topology = TopologyMetrics::new().context("making the metrics of topology run")?;
            out.write_all(metrics_page(&metrics, &topology).as_bytes())?;
            Ok(YES)
        }
        What::Rbac {
            namespace,
            service_account,
            scheduler_name,
            owner,
            default_priorities_configmap_name: map,
            default_priorities_configmap_namespace: of,
            api,
            labels_first,
            read_only,
        } => {
            let options = rbac::Options {
                namespace,
                account: service_account,
                scheduler_name,
                owners: owner,
                defaults_map: of.as_deref().zip(map.as_deref()),
                api: *api,
                labels_first: *labels_first,
                read_only: *read_only,
            };
            objects(&rbac::manifests(&options), out)
        }
        What::Collector { namespace, name, config_map, tools_image, image, schedule, node_selector, adapter } => {
            let adapter = adapter.as_deref();
            objects(&collector::manifests(&collector::Options { namespace, name, config_map, tools_image, image, schedule, node_selector, adapter }), out)
        }
    }
}

fn objects(objects: &[Value], out: &mut dyn Write) -> Result<u8> {
    for object in objects {
        writeln!(out, "---")?;
        out.write_all(serde_saphyr::to_string(object).context("an object can't be written as YAML")?.as_bytes())?;
    }
    Ok(YES)
}

fn crds(folder: Option<&Path>, out: &mut dyn Write) -> Result<u8> {
    let files = berth_api::crds_yaml().context("the definitions can't be written as YAML")?;
    match folder {
        None => {
            for (_, text) in &files {
                writeln!(out, "---")?;
                out.write_all(text.trim_start_matches("---\n").as_bytes())?;
            }
        }
        Some(folder) => {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            for (name, text) in &files {
                let path = folder.join(name);
                fs::write(&path, text).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(YES)
}
