//! The page: one file with its own style, script and data. As a file it asks nobody for anything; served by the scheduler
//! it has no data, and asks for them there and nowhere else.

use serde_json::Value;

/// Where the data goes.
const SLOT: &str = "/*DATA*/[]";

/// Where the served page has more script.
const LIVE_SLOT: &str = "/*LIVE*/";

/// What the page as a file may do.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// What the served page may do: the same, and ask where it came from.
pub const LIVE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'";

/// The page that the scheduler serves.
#[must_use]
pub fn live() -> String {
    include_str!("page.html").replacen(LIVE_SLOT, include_str!("live.js"), 1).replacen(POLICY, LIVE_POLICY, 1)
}

/// The page of one cluster or several.
#[must_use]
pub fn html(documents: &[Value]) -> String {
    let data = serde_json::to_string(documents).unwrap_or_else(|_| "[]".to_owned());
    // Inside a script nothing may look like its end, or like a comment of the page.
    let data = data.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    include_str!("page.html").replacen(LIVE_SLOT, "", 1).replacen(SLOT, &data, 1)
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
        assert!(page.contains(POLICY) && !page.contains("connect-src"));
    }

    #[test]
    fn the_served_page_asks_where_it_came_from_and_nobody_else() {
        let page = live();
        for word in ["http://", "https://", "src=", "@import", "url(", "XMLHttpRequest", "innerHTML", "Storage", "cookie", LIVE_SLOT] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains(LIVE_POLICY) && page.contains("fetch(\"/v1/"));
    }
}
