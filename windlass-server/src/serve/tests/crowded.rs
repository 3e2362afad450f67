//! What readers can do to others: to producers, to the memory, and after their token has ended.

use super::*;

/// Readers take no place of those who submit.
#[tokio::test]
async fn h4_readers_refuse_no_producer() {
    let mut settings = settings();
    settings.limits.requests = 2;
    let served = Arc::new(serve(settings).await);
    let reading: Vec<_> = (0..4)
        .map(|_| {
            let served = Arc::clone(&served);
            tokio::spawn(async move { status(&served.ask("GET /v1/stats", "", "").await) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(status(&served.ask("GET /v1/jobs", "", "").await), 429, "two readers are two too many");
    assert_eq!(status(&served.ask("POST /v1/jobs", "", "{}").await), 200);
    for asked in reading {
        asked.await.expect("it answered");
    }
}

/// H3: answers that nobody reads are bounded in all, and hold up nobody but readers.
#[tokio::test]
async fn h3_answers_that_nobody_reads_are_bounded() {
    let served = serve(settings()).await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        let mut stream = served.connect().await;
        stream.write_all(b"GET /v1/workers HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.expect("a head");
        assert_eq!(status(&String::from_utf8_lossy(&head)), 200);
        unread.push(stream);
    }
    let refused = served.ask("GET /v1/workers", "", "");
    let (refused, small, submitted) =
        tokio::join!(refused, served.ask("GET /v1/jobs", "", ""), served.ask("POST /v1/jobs", "", "{}"));
    assert_eq!((status(&refused), status(&small), status(&submitted)), (503, 200, 200));
    drop(unread);
    assert_eq!(status(&served.ask("GET /v1/workers", "", "").await), 200);
}

/// A stream ends with its token: when it is taken out of the configuration, and at its own end.
#[tokio::test]
async fn m15_a_stream_ends_with_its_token() {
    let (gone, gone_hash) = new_token().expect("a token");
    let (short, short_hash) = new_token().expect("a token");
    let (kept, kept_hash) = new_token().expect("a token");
    let token = |name: &str, hash: &str| Token::new(name, Role::Read, hash).expect("valid");
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(2);
    let mut settings = settings();
    let staying = [token("short", &short_hash).expires(Some(soon)), token("kept", &kept_hash)];
    let all = [vec![token("gone", &gone_hash)], staying.to_vec()].concat();
    settings.tokens = Tokens::new(all).expect("three tokens");
    let (served, guard) = serve_guarded(settings, Arc::new(MemoryStore::new())).await;
    let mut streams = Vec::new();
    for token in [&gone, &short, &kept] {
        let mut stream = served.connect().await;
        let ask = format!("GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.expect("sent");
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.expect("a head");
        assert_eq!(status(&String::from_utf8_lossy(&head)), 200);
        streams.push(stream);
    }
    guard.replace_tokens(Tokens::new(staying.to_vec()).expect("two tokens"));
    let ended = async |stream: &mut TcpStream, within: Duration| {
        let last_chunk = async {
            let (mut all, mut some) = (Vec::new(), [0; 1024]);
            while !all.ends_with(b"0\r\n\r\n") {
                let count = stream.read(&mut some).await.expect("read");
                if count == 0 {
                    break;
                }
                all.extend_from_slice(&some[..count]);
            }
        };
        tokio::time::timeout(within, last_chunk).await.is_ok()
    };
    assert!(ended(&mut streams[0], SOON).await, "its token is not known any more");
    assert!(ended(&mut streams[1], SOON).await, "its token is over");
    assert!(!ended(&mut streams[2], Duration::from_millis(500)).await, "its token holds");
}
