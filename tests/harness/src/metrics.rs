//! What the API server says about the requests it has served.

use kube::Client;

use crate::error::{Error, Result};
use crate::plane::ControlPlane;

/// How often one kind of request was served since the server started.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestCount {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PATCH`, `PUT`, `DELETE`, …
    pub verb: String,
    /// API group; empty for the core one.
    pub group: String,
    /// Resource in the plural, such as `pods`.
    pub resource: String,
    /// Subresource, such as `binding` or `status`; empty for the object itself.
    pub subresource: String,
    /// Status code of the answers.
    pub code: String,
    /// How many.
    pub count: u64,
}

impl ControlPlane {
    /// Requests served so far by verb, resource and code. The server does not
    /// count by user agent; subtract two snapshots to see what a test caused.
    pub async fn request_counts(&self, client: &Client) -> Result<Vec<RequestCount>> {
        let text = get(client, "/metrics").await?;
        let mut counts: Vec<RequestCount> = text.lines().filter_map(parse).collect();
        counts.sort();
        Ok(counts)
    }
}

/// The text of a path of the API server.
pub(crate) async fn get(client: &Client, path: &str) -> Result<String> {
    let what = format!("GET {path}");
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|e| Error::BadFile {
            path: path.into(),
            reason: e.to_string(),
        })?;
    client.request_text(request).await.map_err(Error::api(what))
}

/// One line such as `apiserver_request_total{code="201",…,verb="POST"} 12`.
fn parse(line: &str) -> Option<RequestCount> {
    let (labels, count) = line
        .strip_prefix("apiserver_request_total{")?
        .rsplit_once("} ")?;
    let label = |name: &str| {
        let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
        let value = pairs
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value.trim_matches('"'))
            .next();
        value.unwrap_or_default().to_owned()
    };
    // The format writes whole numbers like floats: 1.234567e+06.
    let count: f64 = count.trim().parse().ok()?;
    Some(RequestCount {
        verb: label("verb"),
        group: label("group"),
        resource: label("resource"),
        subresource: label("subresource"),
        code: label("code"),
        count: count as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn reads_a_line() {
        let line = r#"apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="binding",verb="POST",version="v1"} 1.2e+02"#;
        let count = parse(line).unwrap();
        assert_eq!(
            (count.verb.as_str(), count.subresource.as_str(), count.count),
            ("POST", "binding", 120)
        );
        assert_eq!(parse("# TYPE apiserver_request_total counter"), None);
    }
}
