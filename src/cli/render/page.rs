//! The page: one file with its own style, script and data. It asks nobody for anything.

use serde_json::Value;

/// Where the data goes.
const SLOT: &str = "/*DATA*/[]";

/// The page of one cluster or several.
#[must_use]
pub fn html(documents: &[Value]) -> String {
    let data = serde_json::to_string(documents).unwrap_or_else(|_| "[]".to_owned());
    // Inside a script nothing may look like its end, or like a comment of the page.
    let data = data.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    include_str!("page.html").replacen(SLOT, &data, 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn data_can_not_end_the_script() {
        let page = html(&[json!({"heading": "</script><b>"})]);
        assert!(!page.contains("</script><b>") && page.contains("\\u003c/script>\\u003cb>") || page.contains("\\u003c/script>"), "{page}");
        assert!(!page.contains(SLOT));
    }

    #[test]
    fn nothing_is_loaded_from_anywhere() {
        let page = html(&[]);
        for word in ["http://", "https://", "src=", "@import", "url(", "fetch(", "XMLHttpRequest", "innerHTML"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}
