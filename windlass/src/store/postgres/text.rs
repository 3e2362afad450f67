//! Looking for text in what people wrote into jobs: the server says in which jobs it may be, and only these are fetched whole.

use std::collections::HashSet;
use std::fmt::Write;

use super::fault::Fault;
use super::link::Link;
use crate::store::filter::{Filter, is_plain_in_json};

/// Those of these jobs that may have the text that is asked for; `None` where none is asked for.
pub(super) async fn holding(link: &Link<'_>, filter: &Filter, seqs: &[i64]) -> Result<Option<HashSet<i64>>, Fault> {
    let Some(text) = &filter.text else { return Ok(None) };
    let (bytes, json) = (escaped(text), in_json(text));
    let rows = link.query(include_str!("sql/list_texted.sql"), &[&seqs, &bytes, &json]).await?;
    Ok(Some(rows.iter().map(|row| row.get("seq")).collect()))
}

/// A text as PostgreSQL's `encode(…, 'escape')` writes its bytes, in small letters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'\\' => escaped.push_str("\\\\"),
            0 | 0x80.. => write!(escaped, "\\{byte:03o}").expect("a string takes everything"),
            plain => escaped.push(char::from(plain.to_ascii_lowercase())),
        }
    }
    escaped
}

/// A text as it stands in JSON, in small letters; empty, which is everywhere, where it may stand there in several ways.
fn in_json(text: &str) -> String {
    if is_plain_in_json(text) { text.to_ascii_lowercase() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_the_server_writes_them() {
        assert_eq!(escaped("Aé\\\u{0}\n\u{7f}"), "a\\303\\251\\\\\\000\n\u{7f}");
        assert_eq!((in_json("Ä b"), in_json("\"b"), in_json("a\tb")), ("Ä b".to_owned(), String::new(), String::new()));
    }
}
