//! YAML documents as JSON values, with every number that JSON can't hold kept as text.
//!
//! A quantity such as `1e999` has to reach the conversion as it was written, so documents are built from parser events
//! rather than through floats. Depth and size of what aliases expand to are bounded.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span};

/// Deepest nesting that is read.
const MAX_DEPTH: usize = 128;

/// Most nodes that the aliases of one file may expand to.
const MAX_ALIASED: usize = 1_000_000;

/// A document that can't be read.
#[derive(Debug)]
pub(super) struct YamlError {
    /// Number of the document, from 1.
    pub(super) document: usize,
    /// `line 3 column 7`.
    pub(super) place: String,
    /// What is wrong.
    pub(super) message: String,
}

/// A collection being filled.
enum Frame {
    List(Vec<Value>, usize),
    Map(Map<String, Value>, Option<String>, usize),
}

struct Builder {
    document: usize,
    frames: Vec<Frame>,
    anchors: BTreeMap<usize, Value>,
    aliased: usize,
    documents: Vec<Value>,
    root: Option<Value>,
}

/// Every document of a text; an empty one is null.
pub(super) fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    let mut builder = Builder {
        document: 0,
        frames: Vec::new(),
        anchors: BTreeMap::new(),
        aliased: 0,
        documents: Vec::new(),
        root: None,
    };
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => builder.take(event, span)?,
            Err(error) => {
                let marker = error.marker();
                return Err(YamlError {
                    document: builder.document.max(1),
                    place: place(marker.line(), marker.col() + 1),
                    message: error.info(),
                });
            }
        }
    }
    Ok(builder.documents)
}

fn place(line: usize, column: usize) -> String {
    format!("line {line} column {column}")
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        match event {
            Event::DocumentStart(..) => {
                self.document += 1;
                self.anchors.clear();
            }
            Event::DocumentEnd => {
                let root = self.root.take().unwrap_or(Value::Null);
                self.documents.push(root);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix() == "str");
                let value = if quoted {
                    Value::String(text.into_owned())
                } else {
                    plain(&text)
                };
                self.put(value, anchor, &span)?;
            }
            Event::SequenceStart(_, anchor, _) => self.open(Frame::List(Vec::new(), anchor), &span)?,
            Event::MappingStart(_, anchor, _) => self.open(Frame::Map(Map::new(), None, anchor), &span)?,
            Event::SequenceEnd | Event::MappingEnd => match self.frames.pop() {
                Some(Frame::List(list, anchor)) => self.put(Value::Array(list), anchor, &span)?,
                Some(Frame::Map(mut map, _, anchor)) => {
                    // At the end: what the map says itself counts, wherever it stands.
                    if let Some(source) = map.remove("<<") {
                        merge(&mut map, source);
                    }
                    self.put(Value::Object(map), anchor, &span)?;
                }
                None => return Err(self.error(&span, "an end without a start")),
            },
            Event::Alias(id) => {
                let value = self
                    .anchors
                    .get(&id)
                    .cloned()
                    .ok_or_else(|| self.error(&span, "an alias within its own anchor"))?;
                self.aliased = self.aliased.saturating_add(size(&value));
                if self.aliased > MAX_ALIASED {
                    return Err(self.error(&span, "aliases expand to more than 1000000 values"));
                }
                self.put(value, 0, &span)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, frame: Frame, span: &Span) -> Result<(), YamlError> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(self.error(span, "nested deeper than 128 levels"));
        }
        if let Some(Frame::Map(_, None, _)) = self.frames.last() {
            return Err(self.error(span, "a key must be text"));
        }
        self.frames.push(frame);
        Ok(())
    }

    fn put(&mut self, value: Value, anchor: usize, span: &Span) -> Result<(), YamlError> {
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        let mut duplicate = None;
        match self.frames.last_mut() {
            None => self.root = Some(value),
            Some(Frame::List(list, _)) => list.push(value),
            Some(Frame::Map(map, key, _)) => match key.take() {
                None => {
                    let text = match value {
                        Value::String(text) => text,
                        other => other.to_string(),
                    };
                    if map.contains_key(&text) {
                        duplicate = Some(text);
                    } else {
                        *key = Some(text);
                    }
                }
                Some(key) => {
                    map.insert(key, value);
                }
            },
        }
        match duplicate {
            Some(key) => Err(self.error(span, &format!("the key \"{key}\" appears twice"))),
            None => Ok(()),
        }
    }

    fn error(&self, span: &Span, message: &str) -> YamlError {
        YamlError {
            document: self.document.max(1),
            place: place(span.start.line(), span.start.col() + 1),
            message: message.to_owned(),
        }
    }
}

fn merge(map: &mut Map<String, Value>, value: Value) {
    let sources = match value {
        Value::Array(list) => list,
        other => vec![other],
    };
    for source in sources {
        if let Value::Object(source) = source {
            for (key, value) in source {
                map.entry(key).or_insert(value);
            }
        }
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// A plain scalar by the YAML core schema. A number that JSON can't repeat exactly stays text.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let begins = text
        .trim_start_matches(['-', '+'])
        .starts_with(|c: char| c.is_ascii_digit());
    if begins {
        if let Ok(number) = text.parse::<i64>() {
            return Value::Number(number.into());
        }
        let number = text
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())
            .and_then(Number::from_f64);
        if let Some(number) = number
            && text.len() <= 15
        {
            return Value::Number(number);
        }
    }
    Value::String(text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_become_json_values() {
        let text = "a: 1\nb: [x, 'y', 0.5, 1e999]\n---\n- &n {k: v}\n- *n\n- <<: *n\n  l: ~\n- <<: *n\n  k: w\n";
        let expected = vec![
            json!({"a": 1, "b": ["x", "y", 0.5, "1e999"]}),
            json!([{"k": "v"}, {"k": "v"}, {"k": "v", "l": null}, {"k": "w"}]),
        ];
        assert_eq!(documents(text).unwrap(), expected);
    }

    #[test]
    fn errors_say_where() {
        let error = documents("a: 1\n---\nb: 1\nb: 2\n").unwrap_err();
        assert_eq!((error.document, error.place.as_str()), (2, "line 4 column 1"));
        assert!(error.message.contains("\"b\" appears twice"));
        assert!(documents("{a: [").is_err());
    }

    #[test]
    fn aliases_do_not_explode() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..9 {
            text.push_str(&format!(
                "a{i}: &a{i} [{}]\n",
                vec![format!("*a{}", i - 1); 10].join(", ")
            ));
        }
        assert!(documents(&text).unwrap_err().message.contains("aliases"));
    }
}
