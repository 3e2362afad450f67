use axum::body::to_bytes;

use super::*;

fn ask(path: &str, headers: &[(&'static str, &str)]) -> Option<Response<Body>> {
    let mut given = HeaderMap::new();
    for (name, value) in headers {
        given.insert(*name, value.parse().expect("a header value"));
    }
    answer(&Method::GET, path, &given, "/ops")
}

fn header_of(response: &Response<Body>, name: header::HeaderName) -> String {
    response.headers().get(name).map_or_else(String::new, |value| value.to_str().expect("text").to_owned())
}

async fn text(response: Response<Body>) -> String {
    let bytes = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn the_paths_of_screens_answer_the_entry_with_its_policy() {
    for path in ["/", "/jobs", "/jobs/6d2e", "/queues/a%2Fb", "/sign-in", "/server"] {
        let response = ask(path, &[]).expect("a screen");
        assert_eq!(header_of(&response, header::CONTENT_TYPE), "text/html; charset=utf-8", "{path}");
        assert_eq!(header_of(&response, header::CACHE_CONTROL), "no-cache");
        let policy = header_of(&response, header::CONTENT_SECURITY_POLICY);
        assert!(policy.contains("default-src 'none'") && policy.contains("require-trusted-types-for 'script'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        let text = text(response).await;
        assert!(text.contains("src=\"/ops/page/") && !text.contains(BASE_MARK), "{text}");
        assert!(!text.contains("<style") && !text.contains("style="), "no style in the entry: {text}");
    }
}

#[test]
fn what_is_not_the_pages_is_left_to_the_api() {
    for path in [
        "/v1/jobs",
        "/v1",
        "/metrics",
        "/healthz",
        "/session",
        "/nowhere",
        "/page/",
        "/page/none.js",
        "/page/../Cargo.toml",
        "/page/%2e%2e",
        "/page/.env",
        "",
    ] {
        assert!(ask(path, &[]).is_none(), "{path}");
    }
    assert!(answer(&Method::POST, "/jobs", &HeaderMap::new(), "").is_none());
}

#[tokio::test]
async fn an_entry_that_is_known_is_not_sent_again() {
    let first = ask("/", &[]).expect("the entry");
    let tag = header_of(&first, header::ETAG);
    let again = ask("/jobs", &[("if-none-match", &tag)]).expect("the entry");
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(text(again).await, "");
    let other = answer(&Method::GET, "/", &HeaderMap::new(), "").expect("the entry");
    assert_ne!(header_of(&other, header::ETAG), tag, "under another prefix it is another text");
}

#[tokio::test]
async fn files_are_kept_for_ever_and_compressed_for_those_who_take_it() {
    for asset in &assets::ASSETS {
        let path = format!("/page/{}", asset.name);
        let plain = ask(&path, &[]).expect("a file");
        assert!(header_of(&plain, header::CACHE_CONTROL).contains("immutable"), "{path}");
        assert_ne!(header_of(&plain, header::CONTENT_TYPE), "application/octet-stream", "{path}");
        let plain = to_bytes(plain.into_body(), usize::MAX).await.expect("a body");
        let packed = ask(&path, &[("accept-encoding", "br, gzip")]).expect("a file");
        if plain.len() < COMPRESSED_FROM_BYTES {
            continue;
        }
        assert_eq!(header_of(&packed, header::CONTENT_ENCODING), "gzip", "{path}");
        let packed = to_bytes(packed.into_body(), usize::MAX).await.expect("a body");
        let mut unpacked = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked).expect("gzip");
        assert!(unpacked == plain, "{path} unpacks to what it was");
    }
}

/// The files are committed, so that a clone with Rust alone has the page. This keeps them from growing old, without Node:
/// the build notes which sources it was made of.
#[test]
fn the_files_were_built_from_the_sources_as_they_are() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let noted = std::fs::read_to_string(page.join("dist/SOURCES")).expect("the build notes its sources");
    let mut sources = vec!["build.mjs", "package-lock.json", "package.json", "tsconfig.json"]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    let mut folders = vec!["src".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(page.join(&folder)).expect("a folder of sources") {
            let entry = entry.expect("an entry");
            let path = format!("{folder}/{}", entry.file_name().to_str().expect("a plain name"));
            let is_folder = entry.file_type().expect("a kind").is_dir();
            if is_folder { folders.push(path) } else { sources.push(path) }
        }
    }
    // Printed from the API's description for each check of the types; not part of the page.
    sources.retain(|path| path != "src/api/types.ts");
    sources.sort();
    let found: String = sources.iter().map(|path| format!("{}  {path}\n", sha256_of(&page.join(path)))).collect();
    assert_eq!(noted, found, "the page's sources have changed: run `npm ci && node build.mjs` in windlass-server/page");
}

fn sha256_of(path: &std::path::Path) -> String {
    let bytes = std::fs::read(path).expect("a source");
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
