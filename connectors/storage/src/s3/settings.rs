//! What a store of S3 is made of, from the options, the environment and the AWS profile, in this order.
//! A profile that the options name goes before the environment, as the AWS tools have it.

use super::{
    RoleSettings,
    profile::{Profile, ProfileFiles},
};
use crate::{Field, S3Keys, S3Options, fault::Fault};
use object_store::aws::AmazonS3ConfigKey as Key;
use url::Url;

/// What a store of S3 is made of.
#[derive(Debug)]
pub(crate) struct S3Settings {
    /// A server other than AWS.
    pub endpoint: Option<Url>,
    pub region: String,
    /// As said; without a word the endpoint decides.
    pub path_style: Option<bool>,
    pub credentials: Credentials,
}

/// By what requests are signed.
#[derive(Debug)]
pub(crate) enum Credentials {
    /// Nothing.
    Anonymous,
    Keys {
        keys: S3Keys,
        /// Where they were found.
        source: String,
    },
    /// Keys that a service gives to the role of this machine or container.
    Role { settings: RoleSettings, source: &'static str },
}

/// A variable of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

impl S3Settings {
    /// Settings by `options` and the environment of this process.
    ///
    /// # Errors
    /// The field that is missing or contradicts itself.
    pub fn resolve(options: &S3Options) -> Result<Self, Fault> {
        Self::resolve_in(options, &|name| std::env::var(name).ok())
    }

    fn resolve_in(options: &S3Options, environment: Variable<'_>) -> Result<Self, Fault> {
        let var = &|name: &str| environment(name).filter(|value| !value.is_empty());
        let named = options.profile.clone().or_else(|| var("AWS_PROFILE"));
        let name = named.as_deref().unwrap_or("default");
        let profile = ProfileFiles::find(var).read(name, named.is_some())?;
        let endpoint = endpoint(options, var, &profile)?;
        let region = region(options, var, &profile, endpoint.is_some())?;
        let path_style = match (options.path_style, profile.s3("addressing_style").as_deref()) {
            (Some(said), _) => Some(said),
            (None, Some("path")) => Some(true),
            (None, Some("virtual")) => Some(false),
            (None, _) => None,
        };
        let credentials = credentials(options, var, &profile, name, endpoint.is_some())?;
        Ok(Self { endpoint, region, path_style, credentials })
    }
}

fn endpoint(options: &S3Options, var: Variable<'_>, profile: &Profile) -> Result<Option<Url>, Fault> {
    let said = options
        .endpoint
        .clone()
        .or_else(|| var("AWS_ENDPOINT_URL_S3"))
        .or_else(|| var("AWS_ENDPOINT_URL"))
        .or_else(|| profile.s3("endpoint_url"))
        .or_else(|| profile.get("endpoint_url"));
    let Some(text) = said else { return Ok(None) };
    let wrong = |reason: String| Fault::new(Field::Endpoint, reason);
    let shape = "write https://host[:port], or http://host[:port] where nothing is encrypted";
    let url = match Url::parse(&text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
        _ if text.contains('@') => {
            return Err(wrong(format!("it is not a URL without names and passwords: {shape}")));
        }
        _ => return Err(wrong(format!("`{text}` is not a server's URL: {shape}"))),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(
            "keys do not belong into it: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".into(),
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong(format!("`{text}` has more than a server's URL has: {shape}")));
    }
    Ok(Some(url))
}

fn region(
    options: &S3Options,
    var: Variable<'_>,
    profile: &Profile,
    elsewhere: bool,
) -> Result<String, Fault> {
    let of_profile = || profile.get("region");
    let said = options
        .region
        .clone()
        .or_else(|| options.profile.as_ref().and_then(|_| of_profile()))
        .or_else(|| var("AWS_REGION"))
        .or_else(|| var("AWS_DEFAULT_REGION"))
        .or_else(of_profile);
    match said {
        Some(region) => Ok(region),
        // Servers other than AWS take the region that their clients call the default.
        None if elsewhere => Ok("us-east-1".into()),
        None => Err(Fault::new(
            Field::Region,
            "it is not known: set AWS_REGION, `s3.region`, or `region` in the profile \
             (and `s3.endpoint` if the bucket is not on AWS)",
        )),
    }
}

fn credentials(
    options: &S3Options,
    var: Variable<'_>,
    profile: &Profile,
    name: &str,
    elsewhere: bool,
) -> Result<Credentials, Fault> {
    if options.anonymous == Some(true) {
        return Ok(Credentials::Anonymous);
    }
    if let Some(keys) = options.keys.clone() {
        return Ok(Credentials::Keys { keys, source: "the program".into() });
    }
    let of_profile = || {
        let found = profile.keys()?;
        Ok(found.map(|keys| Credentials::Keys { keys, source: format!("profile `{name}`") }))
    };
    if options.profile.is_some() {
        return of_profile()?.ok_or_else(|| Fault::new(Field::Keys, format!("profile `{name}` has none")));
    }
    // The word of other tools (object_store, polars).
    if options.anonymous.is_none() && var("AWS_SKIP_SIGNATURE").as_deref() == Some("true") {
        return Ok(Credentials::Anonymous);
    }
    if let Some(keys) = environment_keys(var)? {
        return Ok(Credentials::Keys { keys, source: "the environment".into() });
    }
    if let Some(role) = container_role(var) {
        return Ok(role);
    }
    if let Some(found) = of_profile()? {
        return Ok(found);
    }
    if !elsewhere && var("AWS_EC2_METADATA_DISABLED").as_deref() != Some("true") {
        return Ok(Credentials::Role { settings: Vec::new(), source: "the role of this machine" });
    }
    Err(no_keys())
}

/// What to do where no keys are found.
fn no_keys() -> Fault {
    Fault::new(
        Field::Keys,
        "none are found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; \
         for a public bucket set `s3.anonymous` to true, or AWS_SKIP_SIGNATURE in the environment",
    )
}

fn environment_keys(var: Variable<'_>) -> Result<Option<S3Keys>, Fault> {
    match (var("AWS_ACCESS_KEY_ID"), var("AWS_SECRET_ACCESS_KEY")) {
        (Some(id), Some(secret)) => Ok(Some(S3Keys {
            access_key_id: id,
            secret_access_key: secret.into(),
            session_token: var("AWS_SESSION_TOKEN").map(Into::into),
        })),
        (Some(_), None) => {
            Err(Fault::new(Field::SecretKey, "AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY"))
        }
        (None, Some(_)) => {
            Err(Fault::new(Field::AccessKey, "AWS_SECRET_ACCESS_KEY is set without AWS_ACCESS_KEY_ID"))
        }
        (None, None) => Ok(None),
    }
}

/// The ways by which Kubernetes and containers on AWS hand out keys.
fn container_role(var: Variable<'_>) -> Option<Credentials> {
    let all = |pairs: &[(Key, &str)]| -> Option<RoleSettings> {
        pairs.iter().map(|(key, name)| Some((*key, var(name)?))).collect()
    };
    let identity =
        [(Key::WebIdentityTokenFile, "AWS_WEB_IDENTITY_TOKEN_FILE"), (Key::RoleArn, "AWS_ROLE_ARN")];
    if let Some(mut settings) = all(&identity) {
        settings.extend(var("AWS_ROLE_SESSION_NAME").map(|name| (Key::RoleSessionName, name)));
        return Some(Credentials::Role { settings, source: "AWS_WEB_IDENTITY_TOKEN_FILE" });
    }
    let task = [(Key::ContainerCredentialsRelativeUri, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")];
    let pod = [
        (Key::ContainerCredentialsFullUri, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        (Key::ContainerAuthorizationTokenFile, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    ];
    let settings = all(&task).or_else(|| all(&pod))?;
    Some(Credentials::Role { settings, source: "the role of this container" })
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
