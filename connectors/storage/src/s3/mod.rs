//! `s3://bucket/…`, on AWS or on any server that speaks its language.

mod profile;
mod settings;

pub(crate) use settings::{Credentials, S3Settings};

use crate::{fault::Fault, patience::Patience};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use url::Url;

/// The store of a bucket.
///
/// # Errors
/// A bucket or settings that make no client; nothing is sent yet.
pub(crate) fn open(
    bucket: &str,
    settings: &S3Settings,
    patience: Patience,
) -> object_store::Result<AmazonS3> {
    let plain = settings.endpoint.as_ref().is_some_and(|url| url.scheme() == "http");
    let path_style = settings.path_style.unwrap_or(settings.endpoint.is_some() || bucket.contains('.'));
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(&settings.region)
        .with_virtual_hosted_style_request(!path_style)
        .with_client_options(patience.client(plain))
        .with_retry(patience.retries());
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(address(endpoint, bucket, path_style));
    }
    match &settings.credentials {
        Credentials::Anonymous => builder = builder.with_skip_signature(true),
        Credentials::Keys { keys, .. } => {
            builder = builder
                .with_access_key_id(&keys.access_key_id)
                .with_secret_access_key(keys.secret_access_key.reveal());
            if let Some(token) = &keys.session_token {
                builder = builder.with_token(token.reveal());
            }
        }
        Credentials::Role { settings, .. } => {
            for (key, value) in settings {
                builder = builder.with_config(*key, value);
            }
        }
    }
    builder.build()
}

/// The endpoint as the client wants it: with the bucket in the host's name where that is the style.
fn address(endpoint: &Url, bucket: &str, path_style: bool) -> String {
    let text = endpoint.as_str().trim_end_matches('/');
    if path_style {
        return text.into();
    }
    text.replacen("://", &format!("://{bucket}."), 1)
}

/// Settings of the client by which a role's keys are found.
type RoleSettings = Vec<(AmazonS3ConfigKey, String)>;

/// The bucket of a location.
pub(crate) fn bucket(url: &Url) -> Result<&str, Fault> {
    url.host_str()
        .filter(|bucket| !bucket.is_empty())
        .ok_or_else(|| Fault::new(crate::Field::Bucket, "it has none: write s3://bucket/name"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_bucket_is_in_the_path_or_in_the_host() {
        let endpoint = Url::parse("http://127.0.0.1:8333/").unwrap();
        assert_eq!(address(&endpoint, "lab", true), "http://127.0.0.1:8333");
        let endpoint = Url::parse("https://s3.lab.org").unwrap();
        assert_eq!(address(&endpoint, "lab", false), "https://lab.s3.lab.org");
    }

    #[test]
    fn a_location_without_bucket_says_how_it_is_written() {
        let fault = bucket(&Url::parse("s3:///x").unwrap()).unwrap_err();
        assert!(fault.reason.contains("s3://bucket/"), "{fault:?}");
    }
}
