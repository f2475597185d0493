//! The look before the work names the field that is wrong, within five seconds.

use crate::{hdfs_location, s3_location, s3_options, servers};
use object_store::ObjectStoreExt;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use voxelflow_storage::{Error, Field, Purpose, S3Keys, StoreOptions, check};

/// The field that a check for reading names, and what it says.
async fn wrong(text: &str, options: &StoreOptions) -> (Field, String) {
    let start = Instant::now();
    let e: Error = check(text, options, Purpose::Read).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5), "{text}: {:?}", start.elapsed());
    assert!(e.is_input(), "{e}");
    (e.field().unwrap_or_else(|| panic!("{e}")), e.to_string())
}

fn with_keys(options: &StoreOptions, id: &str, secret: &str) -> StoreOptions {
    let keys =
        S3Keys { access_key_id: id.into(), secret_access_key: secret.to_owned().into(), session_token: None };
    let mut options = options.clone();
    options.s3.keys = Some(keys);
    options
}

fn anonymous(options: &StoreOptions) -> StoreOptions {
    let mut options = options.clone();
    options.s3.anonymous = Some(true);
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_names_bucket_key_secret_anonymous_access_and_path() {
    let Some(server) = servers::s3() else { return };
    let options = s3_options(&server.endpoint);
    let there = s3_location(server, "s3://tests/check/there");
    there.store.put(&there.path, "x".into()).await.unwrap();
    for text in ["s3://tests/check/there", "s3://tests/check", "s3://tests"] {
        check(text, &options, Purpose::Read).await.unwrap();
    }
    check("s3://tests/check/new", &options, Purpose::Write).await.unwrap();
    let (id, secret) = (servers::ACCESS_KEY, servers::SECRET_KEY);
    let cases = [
        ("s3://absent/x", options.clone(), Field::Bucket, "`absent`"),
        ("s3://tests/check/absent", options.clone(), Field::Path, "nothing lies there"),
        ("s3://tests/check/there", with_keys(&options, "nobody", secret), Field::AccessKey, "`nobody`"),
        ("s3://tests/check/there", with_keys(&options, id, "wrong"), Field::SecretKey, "the program"),
        ("s3://tests/check/there", anonymous(&options), Field::Anonymous, "AWS_PROFILE"),
    ];
    for (text, options, field, words) in cases {
        let (found, message) = wrong(text, &options).await;
        assert_eq!(found, field, "{message}");
        assert!(message.contains(words) && message.contains(text), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_bucket_is_read_without_keys_and_not_written() {
    let Some(server) = servers::s3() else { return };
    let there = s3_location(server, "s3://public/scan");
    there.store.put(&there.path, "x".into()).await.unwrap();
    let mut public = anonymous(&s3_options(&server.endpoint));
    public.s3.keys = None;
    check("s3://public/scan", &public, Purpose::Read).await.unwrap();
    let public =
        voxelflow_storage::StoreRegistry::default().resolve_with("s3://public/scan", &public).unwrap();
    assert_eq!(public.store.get(&public.path).await.unwrap().bytes().await.unwrap(), "x");
    let e = public.store.put(&public.path, "y".into()).await.unwrap_err();
    assert!(matches!(e, object_store::Error::PermissionDenied { .. }), "{e}");
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_silent_or_is_no_s3_is_named() {
    let closed = "http://127.0.0.1:1";
    let (field, message) = wrong("s3://tests/x", &s3_options(closed)).await;
    assert_eq!(field, Field::Endpoint, "{message}");
    assert!(message.contains(closed) && message.contains("cannot be reached"), "{message}");
    let (field, message) = wrong("s3://tests/x", &s3_options("http://no-such-host.invalid")).await;
    assert_eq!(field, Field::Endpoint, "{message}");
    // It takes connections (the system does) and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("127.0.0.1:{}", silent.local_addr().unwrap().port());
    let (field, message) = wrong("s3://tests/x", &s3_options(&format!("http://{silent}"))).await;
    assert_eq!(field, Field::Endpoint, "{message}");
    let page = answering("404 Not Found", "<html><h1>no such page</h1></html>").await;
    let (field, message) = wrong("s3://tests/x", &s3_options(&page)).await;
    assert_eq!(field, Field::Endpoint, "{message}");
    assert!(message.contains("not as S3 does"), "{message}");
}

#[tokio::test]
async fn a_silent_server_is_not_waited_for() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let options = s3_options(&format!("http://{address}"));
    let (field, message) = wrong("s3://tests/x", &options).await;
    assert_eq!(field, Field::Endpoint, "{message}");
    assert!(message.contains("does not answer"), "{message}");
    let (field, message) = wrong(&format!("hdfs://{address}/x"), &StoreOptions::default()).await;
    assert_eq!(field, Field::NameNode, "{message}");
    let (field, message) = wrong(&format!("http://{address}/x"), &StoreOptions::default()).await;
    assert_eq!(field, Field::Endpoint, "{message}");
    drop(listener);
}

/// The answers of AWS to a region that is not the bucket's, as its documentation has them; no server of ours
/// looks at regions.
#[tokio::test]
async fn a_wrong_region_is_named_with_the_right_one() {
    let malformed = "<?xml version=\"1.0\"?><Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'us-east-1' is \
                     wrong; expecting 'eu-central-1'</Message><Region>eu-central-1</Region></Error>";
    for (status, body, words) in
        [("400 Bad Request", malformed, "it is in eu-central-1"), ("301 Moved Permanently", "", "AWS_REGION")]
    {
        let mut options = s3_options(&answering(status, body).await);
        options.s3.region = Some("us-east-1".into());
        let (field, message) = wrong("s3://tests/x", &options).await;
        assert_eq!(field, Field::Region, "{message}");
        assert!(message.contains(words) && message.contains("us-east-1"), "{message}");
    }
}

/// What a bucket with one object says when it is listed.
const LISTED: &str = "<?xml version=\"1.0\"?><ListBucketResult><Name>tests</Name><Prefix>x/</Prefix><KeyCount>1</KeyCount>\
     <MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated><Contents><Key>x/1</Key><Size>1</Size>\
     <LastModified>2026-11-30T00:00:00.000Z</LastModified><ETag>\"a\"</ETag></Contents></ListBucketResult>";

#[tokio::test]
async fn a_store_that_fails_once_is_asked_again() {
    for first in ["503 Slow Down", "429 Too Many Requests", "500 Internal Server Error", "reset"] {
        let answers = vec![(first, ""), ("200 OK", LISTED)];
        check("s3://tests/x", &s3_options(&answering_in_turn(answers).await), Purpose::Read).await.unwrap();
    }
    // Nothing is wrong with the description of a store that goes on failing: the work asks for a minute.
    let failing = s3_options(&answering("503 Slow Down", "").await);
    check("s3://tests/x", &failing, Purpose::Read).await.unwrap();
    check("s3://tests/x", &failing, Purpose::Write).await.unwrap();
}

/// The URL of a server that gives every request this answer.
async fn answering(status: &'static str, body: &'static str) -> String {
    answering_in_turn(vec![(status, body)]).await
}

/// The URL of a server that gives these answers, and the last of them again and again; at `reset` it hangs up.
async fn answering_in_turn(answers: Vec<(&'static str, &'static str)>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let last = answers.last().copied().unwrap_or_default();
        let mut answers = answers.into_iter();
        while let Ok((mut stream, _)) = listener.accept().await {
            let (status, body) = answers.next().unwrap_or(last);
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            if status == "reset" {
                continue;
            }
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn hdfs_names_name_node_and_path() {
    let options = StoreOptions::default();
    let (field, message) = wrong("hdfs://127.0.0.1:1/x", &options).await;
    assert_eq!(field, Field::NameNode, "{message}");
    let Some(server) = servers::hdfs() else { return };
    let there = hdfs_location(server, "check/there");
    there.store.put(&there.path, "x".into()).await.unwrap();
    for path in ["check/there", "check", ""] {
        check(&format!("{}/{path}", server.url), &options, Purpose::Read).await.unwrap();
    }
    check(&format!("{}/check/new", server.url), &options, Purpose::Write).await.unwrap();
    let (field, message) = wrong(&format!("{}/check/absent", server.url), &options).await;
    assert_eq!(field, Field::Path, "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_names_endpoint_path_and_that_it_is_not_written() {
    let options = StoreOptions::default();
    let (field, message) = wrong("http://127.0.0.1:1/x", &options).await;
    assert_eq!(field, Field::Endpoint, "{message}");
    let e = check("https://host/x", &options, Purpose::Write).await.unwrap_err();
    assert_eq!(e.field(), Some(Field::Scheme), "{e}");
    let Some(server) = servers::s3() else { return };
    let there = s3_location(server, "s3://tests/check_http/there");
    there.store.put(&there.path, "x".into()).await.unwrap();
    check(&format!("{}/buckets/tests/check_http/there", server.files), &options, Purpose::Read)
        .await
        .unwrap();
    let (field, message) =
        wrong(&format!("{}/buckets/tests/check_http/absent", server.files), &options).await;
    assert_eq!(field, Field::Path, "{message}");
}

#[tokio::test]
async fn files_name_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let options = StoreOptions::default();
    std::fs::write(at("there"), "x").unwrap();
    check(&at("there"), &options, Purpose::Read).await.unwrap();
    check(&at("new/deep/file"), &options, Purpose::Write).await.unwrap();
    assert_eq!(wrong(&at("absent"), &options).await.0, Field::Path);
    let e = check(&at("there/file"), &options, Purpose::Write).await.unwrap_err();
    assert_eq!(e.field(), Some(Field::Path), "{e}");
    assert_eq!(wrong("memory://nobody/x", &options).await.0, Field::Path);
}
