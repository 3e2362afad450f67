//! Where all chance comes from: numbers, texts and JSON that tend to the edges.

use serde_json::{Map, Value, json};

/// A source that gives the same for the same seed.
pub(crate) struct Draw(fastrand::Rng);

/// Words that have broken readers before, here or elsewhere.
const NASTY: [&str; 68] = [
    "",
    " ",
    "\0",
    "a\0b",
    "\n",
    "\r\n",
    "\u{feff}",
    "\u{202e}",
    "é",
    "😀",
    "\u{fffd}",
    "\u{10ffff}",
    "'",
    "\"",
    "\\",
    "%",
    "%00",
    "%ff",
    "..",
    "../../windlass-nowhere/x",
    "~",
    "~~",
    "/",
    "//",
    "-",
    "--",
    "@",
    "@/dev/null",
    "@-",
    "=",
    "a=",
    "=b",
    "a=b=c",
    "null",
    "true",
    "NaN",
    "Infinity",
    "-0",
    "0",
    "1",
    "-1",
    "1e308",
    "1e999",
    "0x10",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "0s",
    "1ns",
    "999999999d",
    "999999999d999999999h",
    "1h30m",
    "1m1m",
    "forever",
    "none",
    "0000-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-11-01T12:00:00+14:00",
    "9999-12-31T23:59:59.999999999Z",
    "+010000-01-01T00:00:00Z",
    "-009999-01-01T00:00:00Z",
    "2026-11-01T24:00:60Z",
    "00000000-0000-0000-0000-000000000000",
    "default",
    "wlt_",
];

/// Words of cron expressions and zones, sensible and not.
const CRON: [&str; 29] = [
    "*",
    "0",
    "59",
    "60",
    "*/5",
    "*/0",
    "1-5",
    "5-1",
    "1,2,3",
    "L",
    "15W",
    "LW",
    "MON#5",
    "FRI-MON",
    "JAN",
    "31",
    "30",
    "2",
    "?",
    "@daily",
    "@reboot",
    "*/99999999999",
    "0-59/7",
    "7",
    "8",
    "-",
    "/",
    ",",
    "2099",
];

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Draw(fastrand::Rng::with_seed(seed))
    }

    /// A number from 0 up to `below`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0.usize(..below)
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, among: &[&'a T]) -> &'a T {
        among[self.below(among.len())]
    }

    /// A text of any kind, mostly short.
    pub(crate) fn text(&mut self) -> String {
        match self.below(12) {
            0..=5 => self.pick(&NASTY).to_owned(),
            6 => self.cron(),
            7 => self.moment(),
            8 => format!("{}{}", self.0.u64(..), self.pick(&["", "ns", "us", "ms", "s", "m", "h", "d", "w"])),
            9 => (0..self.below(20)).map(|_| self.0.alphanumeric()).collect(),
            10 => (0..self.below(20)).map(|_| self.0.char(..)).collect(),
            _ => self.pick(&NASTY).repeat(self.below(2000)),
        }
    }

    /// Something like a cron expression, now and then one.
    pub(crate) fn cron(&mut self) -> String {
        if self.once_in(2) {
            let fields = [(60, 0), (60, 0), (24, 0), (31, 1), (12, 1), (7, 0)];
            let first = self.below(2);
            let fields: Vec<_> = fields[first..].iter().map(|(count, least)| self.cron_field(*count, *least)).collect();
            return fields.join(" ");
        }
        let words = 1 + self.below(7);
        let words: Vec<_> = (0..words).map(|_| self.pick(&CRON).to_owned()).collect();
        words.join(self.pick(&[" ", " ", " ", "  ", "\t", ""]))
    }

    /// One field, whose values begin at `least`.
    fn cron_field(&mut self, count: usize, least: usize) -> String {
        let mut one = || least + self.0.usize(..count);
        let (from, to) = (one(), one());
        match self.below(8) {
            0..=2 => "*".to_owned(),
            3 => format!("*/{}", 1 + from),
            4 => format!("{}-{}", from.min(to), from.max(to)),
            5 => format!("{from},{to}"),
            6 => from.to_string(),
            _ => format!("{from}{}{to}", self.pick(&["-", "#", "L", "W", "/", "~"])),
        }
    }

    /// Something like a time.
    fn moment(&mut self) -> String {
        let (year, month, day) = (self.0.u16(..), self.0.u8(..14), self.0.u8(..33));
        let (hour, minute, second) = (self.0.u8(..26), self.0.u8(..62), self.0.u8(..62));
        let zone = self.pick(&["Z", "z", "", "+00:00", "-23:59", "+99:99", "[Europe/Berlin]"]);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{}{zone}", self.0.u32(..))
    }

    pub(crate) fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.0.u8(..)).collect()
    }

    pub(crate) fn number(&mut self) -> Value {
        match self.below(6) {
            0 => json!(self.0.i64(..)),
            1 => json!(self.0.u64(..)),
            2 => json!(f64::from_bits(self.0.u64(..))),
            3 => json!(self.pick(&[&0.0, &-0.0, &0.5, &1e300, &-1e300, &5e-324])),
            4 => json!([i64::MIN, -1, 0, 1, i64::MAX, 1 << 31, 1 << 32, 1 << 53][self.below(8)]),
            _ => json!(self.0.i8(..)),
        }
    }

    /// Any JSON.
    pub(crate) fn json(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.0.bool()),
            2 | 3 => self.number(),
            4 | 5 => json!(self.text()),
            6 => (0..self.below(4)).map(|_| self.json(depth - 1)).collect(),
            _ => Value::Object((0..self.below(4)).map(|_| (self.text(), self.json(depth - 1))).collect::<Map<_, _>>()),
        }
    }

    /// Changes something somewhere in a value.
    pub(crate) fn bend(&mut self, value: &mut Value) {
        match value {
            Value::Object(members) if !members.is_empty() && !self.once_in(5) => {
                let name = members.keys().nth(self.below(members.len())).expect("within bounds").clone();
                match self.below(6) {
                    0 => drop(members.remove(&name)),
                    1 => drop(members.insert(self.text(), Value::Null)),
                    2 => drop(members.insert(name, Value::Null)),
                    _ => self.bend(members.get_mut(&name).expect("it is there")),
                }
            }
            Value::Array(items) if !items.is_empty() && !self.once_in(5) => {
                let at = self.below(items.len());
                match self.below(5) {
                    0 => drop(items.remove(at)),
                    1 => items.push(items[at].clone()),
                    // Longer than any list may be, if its entries are small: lists of long lists would fill the memory.
                    2 => {
                        let most = 400_000 / (1 + items[at].to_string().len());
                        items.resize(self.below(most.clamp(1, 12_000)), items[at].clone());
                    }
                    _ => self.bend(&mut items[at]),
                }
            }
            // As deep as it goes, and deeper than a reader's stack.
            other if self.once_in(20) => {
                for _ in 0..self.below(300) {
                    *other = json!([other.take()]);
                }
            }
            other => *other = self.json(2),
        }
    }

    /// Changes some bytes: turned over, cut, doubled, put in.
    pub(crate) fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(20)).min(bytes.len());
            match self.below(5) {
                0 => bytes.truncate(at),
                1 => drop(bytes.drain(at..end)),
                2 => bytes.splice(at..at, self.bytes(8)).for_each(drop),
                3 => {
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece).for_each(drop);
                }
                _ => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << self.0.u8(..8)),
            }
        }
    }
}
