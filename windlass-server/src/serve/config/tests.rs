use super::*;

fn settings(given: Given, text: &str) -> anyhow::Result<Settings> {
    Settings::check(given, file::parse(text)?)
}

fn hash() -> String {
    "ab".repeat(32)
}

#[test]
fn without_a_word_it_listens_on_loopback_and_writes_a_file() {
    let settings = settings(Given::default(), "").expect("the usual");
    assert_eq!(settings.listen.to_string(), "127.0.0.1:7654");
    assert!(settings.any_port);
    assert_eq!(settings.store, "sqlite:windlass.db");
    assert_eq!(settings.retention, Retention::default());
}

#[test]
fn flags_win_over_the_file() {
    let file = "store = \"memory:\"\nlisten = \"127.0.0.1:1\"\n[log]\nlevel = \"debug\"";
    let given = Given { store: Some("sqlite:x.db".to_owned()), ..Given::default() };
    let settings = settings(given, file).expect("valid");
    assert_eq!((settings.store.as_str(), settings.listen.port()), ("sqlite:x.db", 1));
    assert!(!settings.any_port);
    assert_eq!(settings.level, Some(Level::Debug));
}

#[test]
fn an_unknown_key_is_refused_by_name() {
    for text in [
        "stroe = \"memory:\"",
        "[limits]\nstroe = 1",
        "[retention]\nstroe = \"1d\"",
        "[webhooks]\nstroe = 1",
        "[log]\nstroe = 1",
        "[[tokens]]\nrole = \"read\"\nsha256 = \"\"\nstroe = 1",
    ] {
        let refused = settings(Given::default(), text).expect_err(text);
        assert!(format!("{refused:#}").contains("stroe"), "{text}: {refused:#}");
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_not_repeated() {
    for text in
        ["[webhooks]\nsecrets = \"whsec_hunter2\"", "hosts = \"hunter2 \\\", expected\"", "grace = [\"hunter2\"]"]
    {
        let refused = format!("{:#}", settings(Given::default(), text).expect_err(text));
        assert!(!refused.contains("hunter2") && refused.contains("expected"), "{refused}");
    }
}

/// The start matrix: which address with which tokens.
#[test]
fn only_loopback_is_served_without_a_token() {
    let token = format!("[[tokens]]\nrole = \"admin\"\nsha256 = \"{}\"", hash());
    for (listen, free) in [
        ("127.0.0.1:7654", true),
        ("127.8.8.8:7654", true),
        ("localhost:7654", true),
        ("[::1]:7654", true),
        ("7654", true),
        ("0.0.0.0:7654", false),
        ("[::]:7654", false),
        ("192.0.2.1:7654", false),
        ("192.0.2.1", false),
        ("[2001:db8::1]:7654", false),
        ("[::ffff:127.0.0.1]:7654", false),
    ] {
        let given = Given { listen: Some(listen.to_owned()), ..Given::default() };
        let without = settings(given.clone(), "");
        assert_eq!(without.is_ok(), free, "{listen}");
        if let Err(refused) = without {
            assert!(refused.to_string().contains("windlass token new"), "{refused}");
        }
        assert!(settings(given, &token).is_ok(), "{listen} with a token");
    }
}

#[test]
fn what_is_out_of_bounds_is_named() {
    for (text, name) in [
        ("listen = \"nowhere\"", "listen"),
        ("listen = \"127.0.0.1:99999\"", "listen"),
        ("hosts = [\"a b\"]", "hosts"),
        ("origins = [\"jobs.example.com\"]", "origins"),
        ("[limits]\npayload_bytes = 16777217", "limits.payload_bytes"),
        ("[limits]\npayload_bytes = 0", "limits.payload_bytes"),
        ("[limits]\nbatch_bytes = 10", "limits.batch_bytes"),
        ("[limits]\nconnections = 0", "limits.connections"),
        ("[limits]\nheader_timeout = \"0s\"", "limits.header_timeout"),
        ("[limits]\nheader_timeout = \"2h\"", "limits.header_timeout"),
        ("[limits]\nheader_timeout = \"soon\"", "line 2"),
        ("[log]\nlevel = \"loud\"", "log.level"),
        ("[log]\nformat = \"xml\"", "log.format"),
        ("[webhooks]\nsecrets = [\"hunter2hunter2\"]", "webhooks.secrets"),
        ("[webhooks]\nallow = [\"10.0.0.0/99\"]", "webhooks.allow"),
        ("[webhooks]\ntimeout = \"60s\"", "webhooks.timeout"),
        ("[[tokens]]\nrole = \"hunter2\"\nsha256 = \"\"", "line 2: unknown value, expected one of `read`"),
        ("listen = \"hunter2\"", "listen"),
        ("base = \"hunter2\"", "base"),
        ("[log]\nformat = \"hunter2\"", "log.format"),
        ("[log]\nlevel = \"hunter2\"", "log.level"),
        ("[[tokens]]\nrole = \"read\"\nsha256 = \"xyz\"", "tokens, entry 1"),
    ] {
        let refused = format!("{:#}", settings(Given::default(), text).expect_err(text));
        assert!(refused.contains(name), "{text}: {refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[test]
fn retention_knows_no_end() {
    let settings = settings(Given::default(), "[retention]\ncompleted = \"none\"\nfailed = \"30d\"").expect("valid");
    assert_eq!(settings.retention.completed, None);
    assert_eq!(settings.retention.failed, Some(Duration::from_secs(30 * 86_400)));
    assert_eq!(settings.retention.cancelled, Retention::default().cancelled);
}

#[test]
fn secrets_do_not_show() {
    let secret = format!("whsec_{}", "QUFB".repeat(8));
    let settings = settings(Given::default(), &format!("[webhooks]\nsecrets = [{secret:?}]")).expect("valid");
    let shown = format!("{settings:?}");
    assert!(!shown.contains("QUFB") && !shown.contains("AAA"), "{shown}");
}

/// L13: two tokens that are one, and a token that anybody guesses.
#[test]
fn l13_weak_tokens_are_refused_at_the_start() {
    let token = |role: &str, hash: &str| format!("[[tokens]]\nrole = \"{role}\"\nsha256 = \"{hash}\"\n");
    let twice = format!("{}{}", token("read", &hash()), token("admin", &hash().to_uppercase()));
    let refused = format!("{:#}", settings(Given::default(), &twice).expect_err("one token with two roles"));
    assert!(refused.contains("same sha256"), "{refused}");
    // The SHA-256 of `password`.
    let guessed = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
    let refused = format!("{:#}", settings(Given::default(), &token("admin", guessed)).expect_err("guessed"));
    assert!(refused.contains("anybody guesses") && !refused.contains(guessed), "{refused}");
}

/// M17: what a token is bound to is read, and refused where it cannot be meant.
#[test]
fn m17_tokens_are_bound_and_end_as_the_file_says() {
    let token = format!("[[tokens]]\nrole = \"work\"\nsha256 = \"{}\"\n", hash());
    let good = format!("{token}queues = [\"mail\"]\ntypes = [\"send\"]\nexpires = \"2027-01-31T00:00:00Z\"\n");
    let read = settings(Given::default(), &good).expect("valid");
    let token_read = read.tokens.iter().next().expect("a token").clone();
    assert_eq!(token_read.bounds().queues.len() + token_read.bounds().types.len(), 2);
    assert!(token_read.is_over("2027-02-01T00:00:00Z".parse().expect("a time")));
    for (line, named) in
        [("queues = [\"a b\"]", "queues"), ("types = [\"\"]", "types"), ("expires = \"soon\"", "expires")]
    {
        let refused = format!("{:#}", settings(Given::default(), &format!("{token}{line}\n")).expect_err(line));
        assert!(refused.contains(named), "{refused}");
    }
}

/// L7: a secret that stands where a key should is not repeated.
#[test]
fn l7_a_token_written_as_a_key_is_not_repeated() {
    for key in ["windlass_hunter2-hunter2", "whsec_hunter2", "hunter2hunter2hunter2hunter2hunter2"] {
        let refused = format!("{:#}", settings(Given::default(), &format!("{key} = 1\n")).expect_err(key));
        assert!(!refused.contains("hunter2") && refused.contains("looks like a secret"), "{refused}");
    }
}
