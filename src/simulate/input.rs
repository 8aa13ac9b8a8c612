//! Files, directories, standard input: bytes become documents, documents become objects with their place.

use std::borrow::Cow;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use super::{InputError, archive, yaml};

/// Most bytes that one file may hold once unpacked.
const MAX_BYTES: u64 = 4 << 30;

/// Where an object stood.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file as it was given; `-` is standard input.
    pub file: String,
    /// Number of the document in it, from 1.
    pub document: usize,
}

/// One object of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Where it stood.
    pub place: Place,
    /// The object itself.
    pub value: Value,
}

/// Reads every path: files, directories (recursively, by name) and `-`.
pub fn read_paths(paths: &[PathBuf]) -> Result<Vec<Item>, InputError> {
    let mut items = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            items.extend(of_named("-", &bytes_of(path)?)?);
            continue;
        }
        let files = files_below(path)?;
        if files.is_empty() {
            return Err(whole(&path.display().to_string(), "nothing to read: no file in it ends in .yaml, .yml, .json or one of them and .gz"));
        }
        for file in files {
            let name = file.display().to_string();
            let bytes = bytes_of(&file)?;
            // What a directory holds besides may be empty; what was named may not.
            items.extend(if file == *path { of_named(&name, &bytes) } else { read_bytes(&name, &bytes) }?);
        }
    }
    Ok(items)
}

/// The text of a file that holds something else than objects, packed or not; `-` is standard input.
///
/// # Errors
///
/// It can't be read, or is no text.
pub fn read_text(path: &Path) -> Result<String, InputError> {
    text_of(&path.display().to_string(), &bytes_of(path)?).map(Cow::into_owned)
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, InputError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let read = if name == "-" { std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes) } else { fs::read(path) };
    read.map_err(|error| whole(&name, &error.to_string()))
}

/// Objects of an input that was named: one without a word in it is a slip (a dump that failed, a wrong name).
fn of_named(name: &str, bytes: &[u8]) -> Result<Vec<Item>, InputError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(whole(name, "empty: there is nothing in it"));
    }
    read_bytes(name, bytes)
}

fn whole(file: &str, message: &str) -> InputError {
    InputError {
        file: file.to_owned(),
        document: String::new(),
        field: String::new(),
        message: message.to_owned(),
    }
}

/// The file itself, or what a directory holds with a known ending, in the order of names.
fn files_below(path: &Path) -> Result<Vec<PathBuf>, InputError> {
    let name = path.display().to_string();
    let metadata = fs::metadata(path).map_err(|error| whole(&name, &error.to_string()))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let name = folder.display().to_string();
        let entries = fs::read_dir(&folder).map_err(|error| whole(&name, &error.to_string()))?;
        for entry in entries {
            let entry = entry.map_err(|error| whole(&name, &error.to_string()))?;
            let kind = entry.file_type().map_err(|error| whole(&name, &error.to_string()))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if is_manifest(&entry.path()) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}

/// Objects of one file's bytes: YAML or JSON, packed or not, or KAI Scheduler's archive.
pub fn read_bytes(file: &str, bytes: &[u8]) -> Result<Vec<Item>, InputError> {
    if bytes.starts_with(&archive::ZIP) {
        let texts = archive::json_files(bytes, MAX_BYTES).map_err(|message| whole(file, &format!("not a snapshot: {message}")))?;
        let items: Result<Vec<Vec<Item>>, InputError> = texts.iter().map(|text| read_bytes(file, text.as_bytes())).collect();
        return Ok(items?.into_iter().flatten().collect());
    }
    let text = text_of(file, bytes)?;
    let mut items = Vec::new();
    for (index, value) in documents(file, text.trim_start_matches('\u{feff}'))?.into_iter().enumerate() {
        let place = Place {
            file: file.to_owned(),
            document: index + 1,
        };
        flatten(place, value, &mut items)?;
    }
    Ok(items)
}

/// The text of a file's bytes, unpacked.
fn text_of<'a>(file: &str, bytes: &'a [u8]) -> Result<Cow<'a, str>, InputError> {
    let no_text = |error: std::str::Utf8Error| whole(file, &format!("not text: byte {} is not UTF-8", error.valid_up_to()));
    let text = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let mut decoder = MultiGzDecoder::new(bytes).take(MAX_BYTES);
        decoder.read_to_end(&mut unpacked).map_err(|error| whole(file, &format!("not a gzip file: {error}")))?;
        Cow::Owned(String::from_utf8(unpacked).map_err(|error| no_text(error.utf8_error()))?)
    } else {
        Cow::Borrowed(std::str::from_utf8(bytes).map_err(no_text)?)
    };
    if text.contains('\0') {
        return Err(whole(file, "not text: it holds a zero byte"));
    }
    Ok(text)
}

fn documents(file: &str, text: &str) -> Result<Vec<Value>, InputError> {
    if text.trim_start().starts_with('{') {
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(values) = values {
            return Ok(values);
        }
    }
    // JSON that does not pass is read once more as YAML: flow style, or a number that JSON can't hold.
    yaml::documents(text).map_err(|error| InputError {
        file: file.to_owned(),
        document: error.document.to_string(),
        field: error.place,
        message: error.message,
    })
}

/// Takes lists apart; refuses what is no object.
fn flatten(place: Place, value: Value, items: &mut Vec<Item>) -> Result<(), InputError> {
    let refuse = |field: &str, message: &str| InputError {
        file: place.file.clone(),
        document: place.document.to_string(),
        field: field.to_owned(),
        message: message.to_owned(),
    };
    let mut object = match value {
        Value::Null => return Ok(()),
        Value::Object(object) => object,
        _ => {
            return Err(refuse(
                "",
                "not an object: allowed are Kubernetes objects with apiVersion and kind",
            ));
        }
    };
    if archive::is_snapshot(&object) {
        items.extend(archive::objects(object).into_iter().map(|value| Item { place: place.clone(), value }));
        return Ok(());
    }
    let kind = match object.get("kind") {
        Some(Value::String(kind)) if !kind.is_empty() => kind.clone(),
        _ => return Err(refuse("kind", "missing; every object needs apiVersion and kind")),
    };
    let Some(Value::String(version)) = object.get("apiVersion").cloned() else {
        return Err(refuse("apiVersion", "missing; every object needs apiVersion and kind"));
    };
    if !kind.ends_with("List") || !object.contains_key("items") {
        items.push(Item {
            place,
            value: Value::Object(object),
        });
        return Ok(());
    }
    let list = match object.remove("items") {
        Some(Value::Array(list)) => list,
        Some(Value::Null) => Vec::new(),
        _ => return Err(refuse("items", "not a list")),
    };
    let element = kind.strip_suffix("List").unwrap_or_default().to_owned();
    for mut value in list {
        if let Value::Object(object) = &mut value
            && !element.is_empty()
        {
            // A typed list (PodList) leaves these out of its items.
            object.entry("kind").or_insert_with(|| Value::String(element.clone()));
            object
                .entry("apiVersion")
                .or_insert_with(|| Value::String(version.clone()));
        }
        flatten(place.clone(), value, items)?;
    }
    Ok(())
}
