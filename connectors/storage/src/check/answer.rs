//! What a store's answer says about the description of the store. Pure.

use crate::{
    Field,
    fault::Fault,
    s3::{Credentials, S3Settings},
};
use object_store::{
    Error,
    client::{HttpError, HttpErrorKind},
};
use std::error::Error as StdError;

/// Who was asked.
#[derive(Debug)]
pub(super) enum Asked {
    S3 { bucket: String, settings: Box<S3Settings> },
    Hdfs { authority: String },
    Http { authority: String },
}

impl Asked {
    /// The field that is wrong when no answer comes.
    pub fn silent(&self) -> Fault {
        let silent = "does not answer: is it the right address, and is it reachable from here?";
        match self {
            Self::S3 { settings, .. } if is_role(settings) => role(settings, silent),
            Self::S3 { bucket, settings } => {
                Fault::new(Field::Endpoint, format!("{} {silent}", server(bucket, settings)))
            }
            Self::Hdfs { authority } => Fault::new(Field::NameNode, format!("{authority} {silent}")),
            Self::Http { authority } => Fault::new(Field::Endpoint, format!("{authority} {silent}")),
        }
    }

    /// The field that is wrong when this is the answer.
    pub fn fault(&self, e: &Error) -> Fault {
        match self {
            Self::S3 { bucket, settings } => s3(bucket, settings, e),
            Self::Hdfs { authority } => hdfs(authority, e),
            Self::Http { authority } => http(authority, e),
        }
    }
}

/// The server that is asked for a bucket.
fn server(bucket: &str, settings: &S3Settings) -> String {
    match &settings.endpoint {
        Some(endpoint) => endpoint.as_str().trim_end_matches('/').into(),
        None => format!("AWS in {} for {bucket}", settings.region),
    }
}

fn is_role(settings: &S3Settings) -> bool {
    matches!(settings.credentials, Credentials::Role { .. })
}

fn role(settings: &S3Settings, answer: &str) -> Fault {
    let Credentials::Role { source, .. } = &settings.credentials else {
        return Fault::new(Field::Keys, answer);
    };
    let reason = format!(
        "none are in the environment or a profile, and {source} gives none ({answer}): set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for a public bucket set `s3.anonymous` to true, or AWS_SKIP_SIGNATURE in \
         the environment"
    );
    Fault::new(Field::Keys, reason)
}

/// By the codes of <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>.
fn s3(bucket: &str, settings: &S3Settings, e: &Error) -> Fault {
    let server = server(bucket, settings);
    if is_role(settings) && tag(&full(e), "Code").is_none() {
        return role(settings, &brief(e));
    }
    if let Some(reason) = unreachable(e) {
        return Fault::new(Field::Endpoint, format!("{server} {reason}"));
    }
    let text = full(e);
    let (key, source) = match &settings.credentials {
        Credentials::Keys { keys, source } => (keys.access_key_id.as_str(), source.as_str()),
        _ => ("", ""),
    };
    let anonymous = matches!(settings.credentials, Credentials::Anonymous);
    let code = tag(&text, "Code").unwrap_or_default();
    match code.as_str() {
        "NoSuchBucket" | "InvalidBucketName" => {
            Fault::new(Field::Bucket, format!("`{bucket}` does not exist at {server} ({code})"))
        }
        "InvalidAccessKeyId" => {
            Fault::new(Field::AccessKey, format!("{server} does not know `{key}`, which comes from {source}"))
        }
        "SignatureDoesNotMatch" => Fault::new(
            Field::SecretKey,
            format!("it does not belong to the access key `{key}`; both come from {source}"),
        ),
        "InvalidToken" | "ExpiredToken" | "TokenRefreshRequired" => {
            Fault::new(Field::SessionToken, format!("{code}: get new keys; these come from {source}"))
        }
        "RequestTimeTooSkewed" => {
            Fault::new(Field::Clock, "it differs from the server's by too much: set it")
        }
        "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException" => {
            wrong_region(bucket, settings, &text)
        }
        _ if text.contains("incorrectly configured region") => wrong_region(bucket, settings, &text),
        _ if anonymous && (denied(e) || code == "AccessDenied") => Fault::new(
            Field::Anonymous,
            format!(
                "{server} refuses reading `{bucket}` without keys: set AWS_ACCESS_KEY_ID and \
                     AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and leave out s3.anonymous"
            ),
        ),
        _ if denied(e) => Fault::new(
            Field::Permission,
            format!("`{key}` from {source} may not do this in `{bucket}` ({code})"),
        ),
        // A bucket's listing is never absent from a server that speaks S3.
        "" => Fault::new(Field::Endpoint, format!("{server} answers, but not as S3 does: {}", brief(e))),
        _ => {
            let message = tag(&text, "Message").unwrap_or_default();
            Fault::new(Field::Endpoint, format!("{server} answers {code}: {message}"))
        }
    }
}

fn wrong_region(bucket: &str, settings: &S3Settings, text: &str) -> Fault {
    let used = &settings.region;
    let right = tag(text, "Region").map(|region| format!("; it is in {region}")).unwrap_or_default();
    Fault::new(Field::Region, format!("`{bucket}` is not in {used}{right}: set AWS_REGION or `s3.region`"))
}

fn hdfs(authority: &str, e: &Error) -> Fault {
    let text = full(e);
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&["SASL", "GSSAPI", "SIMPLE authentication is not enabled", "authentication mechanism"]) {
        let reason =
            format!("{authority} wants another one, such as a Kerberos ticket (kinit): {}", brief(e));
        return Fault::new(Field::Authentication, reason);
    }
    if has(&["AccessControlException", "Permission denied"]) {
        return Fault::new(Field::Permission, format!("{} (the user is HADOOP_USER_NAME)", brief(e)));
    }
    if has(&["StandbyException"]) {
        return Fault::new(Field::NameNode, format!("none of {authority} is active: {}", brief(e)));
    }
    Fault::new(Field::NameNode, format!("{authority} cannot be used: {}", brief(e)))
}

fn http(authority: &str, e: &Error) -> Fault {
    if let Some(reason) = unreachable(e) {
        return Fault::new(Field::Endpoint, format!("{authority} {reason}"));
    }
    match e {
        Error::NotFound { .. } => Fault::new(Field::Path, format!("{authority} has no such file")),
        _ if denied(e) => Fault::new(Field::Permission, format!("{authority} refuses: {}", brief(e))),
        _ => Fault::new(Field::Endpoint, format!("{authority} answers: {}", brief(e))),
    }
}

/// Whether a server has said that it is busy, or that it fails by itself.
pub(super) fn is_passing(e: &Error) -> bool {
    let status = causes(e).find_map(|cause| {
        let text = cause.to_string();
        let (_, rest) = text.split_once("status code: ")?;
        rest.get(..3)?.parse::<u16>().ok()
    });
    status.is_some_and(|status| [429, 500, 502, 503, 504].contains(&status))
}

fn denied(e: &Error) -> bool {
    matches!(e, Error::PermissionDenied { .. } | Error::Unauthenticated { .. })
}

/// Why a server could not be spoken to, if that is it.
fn unreachable(e: &Error) -> Option<String> {
    let kind = causes(e).find_map(|cause| cause.downcast_ref::<HttpError>().map(HttpError::kind))?;
    let reason = match kind {
        HttpErrorKind::Timeout => {
            "does not answer: is it the right address, and is it reachable from here?".into()
        }
        _ => format!("cannot be reached: {}", brief(e)),
    };
    Some(reason)
}

/// An error and its causes, outermost first.
fn causes<'a>(e: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(e), |e| StdError::source(*e))
}

/// All that an error says.
fn full(e: &Error) -> String {
    causes(e).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// What an error says at its root, in one line.
fn brief(e: &Error) -> String {
    let root = causes(e).last().map(ToString::to_string).unwrap_or_default();
    let line = root.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(200).collect()
}

/// The text of an element of an XML answer.
fn tag(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once('<')?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_element_of_an_answer_is_found() {
        let text = "x <Error><Code>NoSuchBucket</Code><Region>eu-central-1</Region></Error>";
        assert_eq!(tag(text, "Code").as_deref(), Some("NoSuchBucket"));
        assert_eq!(tag(text, "Region").as_deref(), Some("eu-central-1"));
        assert_eq!(tag("<Code>cut", "Code"), None);
    }

    #[test]
    fn the_answers_of_name_nodes_are_told_apart() {
        let field =
            |text: &str| hdfs("h:1", &Error::Generic { store: "hdfs", source: text.to_owned().into() }).field;
        assert_eq!(field("SASL error: no"), Field::Authentication);
        assert_eq!(
            field("RPC error: org.apache.hadoop.security.AccessControlException Permission denied: user=x"),
            Field::Permission
        );
        assert_eq!(field("RPC error: org.apache.hadoop.ipc.StandbyException READ"), Field::NameNode);
        assert_eq!(field("Connection refused (os error 111)"), Field::NameNode);
    }
}
