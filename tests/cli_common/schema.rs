//! JSON schemas, as far as those in `tests/schema` go. A keyword that is not understood is an error, not a permission.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;

use serde_json::Value;

/// The schema of a verb's `--json` output: of each line, or of the one document.
pub fn of(verb: &str) -> Value {
    let path = format!("{}/tests/schema/{verb}.json", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// What is wrong with a value, and where in it; `Ok` when it fits.
pub fn check(schema: &Value, value: &Value) -> Result<(), String> {
    let schema = schema.as_object().unwrap();
    for (keyword, rule) in schema {
        let fits = match keyword.as_str() {
            "$schema" | "title" | "required" => true,
            "type" => match rule {
                Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap(), value)),
                name => is(name.as_str().unwrap(), value),
            },
            "const" => rule == value,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_i64().is_none_or(|number| number >= rule.as_i64().unwrap()),
            "oneOf" => {
                let faults: Vec<String> =
                    rule.as_array().unwrap().iter().filter_map(|one| check(one, value).err()).collect();
                if faults.len() + 1 == rule.as_array().unwrap().len() { true } else { return Err(faults.join(" / ")) }
            }
            "items" => {
                for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(rule, item).map_err(|fault| format!("[{at}]{fault}"))?;
                }
                true
            }
            "properties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    if let Some(rule) = rule.get(name) {
                        check(rule, member).map_err(|fault| format!(".{name}{fault}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                let named = schema.get("properties").and_then(Value::as_object);
                for (name, member) in value.as_object().into_iter().flatten() {
                    if named.is_some_and(|named| named.contains_key(name)) {
                        continue;
                    }
                    if *rule == Value::Bool(false) {
                        return Err(format!(": member {name} is not in the schema"));
                    }
                    check(rule, member).map_err(|fault| format!(".{name}{fault}"))?;
                }
                true
            }
            other => panic!("the schema's keyword {other} is not understood"),
        };
        if !fits {
            return Err(format!(": {value} does not fit {keyword} {rule}"));
        }
    }
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if value.get(name.as_str().unwrap()).is_none() {
            return Err(format!(": member {name} is missing"));
        }
    }
    Ok(())
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        other => panic!("the schema's type {other} is not understood"),
    }
}
