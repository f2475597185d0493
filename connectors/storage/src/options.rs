//! What a user can say about stores, by name. Nothing secret has a name here: keys come from the
//! environment, from a profile, or from the program ([`S3Options::keys`]), and never from a statement,
//! whose text is recorded.

use crate::{Error, Result, Secret};

/// What a user can say about stores. What is not said comes from the environment and from AWS profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoreOptions {
    /// Of `s3://` locations.
    pub s3: S3Options,
}

/// What a user can say about `s3://` locations; see [`StoreOptions::NAMES`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct S3Options {
    /// `https://host[:port]` of a server other than AWS; `http://…` where nothing is encrypted.
    pub endpoint: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    /// Requests are not signed, as public buckets want it.
    pub anonymous: Option<bool>,
    /// `endpoint/bucket/…` instead of `bucket.endpoint/…`.
    pub path_style: Option<bool>,
    /// The profile of the AWS files that has the keys.
    pub profile: Option<String>,
    /// Keys given by the program itself.
    pub keys: Option<S3Keys>,
}

/// An access key and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct S3Keys {
    /// Names the key; not secret.
    pub access_key_id: String,
    /// Signs requests.
    pub secret_access_key: Secret,
    /// Belongs to keys that end after some hours.
    pub session_token: Option<Secret>,
}

impl StoreOptions {
    /// The names that [`Self::set`] knows, with what each means.
    pub const NAMES: [(&'static str, &'static str); 5] = [
        ("s3.endpoint", "https://host[:port] of a server other than AWS; http:// where nothing is encrypted"),
        ("s3.region", "region of the bucket (default: AWS_REGION, AWS_DEFAULT_REGION, the profile's)"),
        (
            "s3.anonymous",
            "true: requests are not signed, as public buckets want it (default: AWS_SKIP_SIGNATURE)",
        ),
        ("s3.path_style", "true: endpoint/bucket/…, the default with an endpoint; false: bucket.endpoint/…"),
        ("s3.profile", "profile of ~/.aws/credentials and ~/.aws/config (default: AWS_PROFILE)"),
    ];

    /// Sets one option by name; an empty value takes back what was set.
    ///
    /// # Errors
    /// [`Error::Option`] for a name that is not in [`Self::NAMES`], or a value that it cannot have.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let text = (!value.is_empty()).then(|| value.to_owned());
        match name {
            "s3.endpoint" => self.s3.endpoint = text,
            "s3.region" => self.s3.region = text,
            "s3.profile" => self.s3.profile = text,
            "s3.anonymous" => self.s3.anonymous = truth(name, text.as_deref())?,
            "s3.path_style" => self.s3.path_style = truth(name, text.as_deref())?,
            _ => return Err(Error::Option { name: name.into(), reason: unknown(name) }),
        }
        Ok(())
    }

    /// What was said, as pairs that [`Self::set`] takes: nothing secret is among them.
    pub fn said(&self) -> Vec<(&'static str, String)> {
        let flag = |said: Option<bool>| said.map(|truth| truth.to_string());
        let s3 = &self.s3;
        let said = [
            ("s3.endpoint", s3.endpoint.clone()),
            ("s3.region", s3.region.clone()),
            ("s3.anonymous", flag(s3.anonymous)),
            ("s3.path_style", flag(s3.path_style)),
            ("s3.profile", s3.profile.clone()),
        ];
        said.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

fn truth(name: &str, value: Option<&str>) -> Result<Option<bool>> {
    let reason = || "it is `true` or `false`".to_owned();
    value.map(|v| v.parse().map_err(|_| Error::Option { name: name.into(), reason: reason() })).transpose()
}

fn unknown(name: &str) -> String {
    if ["key", "secret", "token", "password"].iter().any(|word| name.contains(word)) {
        return "keys are not set by name, for statements are recorded: set AWS_ACCESS_KEY_ID and \
                AWS_SECRET_ACCESS_KEY in the environment, or s3.profile"
            .into();
    }
    let names: Vec<&str> = StoreOptions::NAMES.iter().map(|(name, _)| *name).collect();
    format!("there is no such option; known: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_name_can_be_set_is_said_again_and_taken_back() {
        let mut options = StoreOptions::default();
        for (name, _) in StoreOptions::NAMES {
            options.set(name, "true").unwrap();
        }
        let said = options.said();
        assert_eq!(said.iter().map(|(name, _)| *name).collect::<Vec<_>>(), StoreOptions::NAMES.map(|n| n.0));
        let mut again = StoreOptions::default();
        for (name, value) in &said {
            again.set(name, value).unwrap();
        }
        assert_eq!(again, options);
        for (name, _) in StoreOptions::NAMES {
            options.set(name, "").unwrap();
        }
        assert_eq!(options, StoreOptions::default());
    }

    #[test]
    fn a_wrong_name_or_value_is_refused_and_a_secret_is_not_repeated() {
        let mut options = StoreOptions::default();
        let unknown = options.set("s3.regoin", "x").unwrap_err();
        assert!(unknown.to_string().contains("s3.region"), "{unknown}");
        let value = options.set("s3.anonymous", "yes").unwrap_err();
        assert!(value.to_string().contains("`true` or `false`"), "{value}");
        let secret = options.set("s3.secret_access_key", "hush").unwrap_err().to_string();
        assert!(secret.contains("AWS_SECRET_ACCESS_KEY") && !secret.contains("hush"), "{secret}");
    }
}
