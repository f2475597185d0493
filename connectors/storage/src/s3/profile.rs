//! The files in which the AWS tools keep profiles: `~/.aws/credentials` and `~/.aws/config`.
//!
//! <https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html>

use crate::{Field, S3Keys, fault::Fault};
use configparser::ini::{Ini, IniDefault};
use std::{collections::HashMap, fmt, path::PathBuf};

/// What one profile says. Without `Debug` of its values, for some are secret.
pub(super) struct Profile {
    name: String,
    values: HashMap<String, String>,
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where the two files lie.
#[derive(Debug)]
pub(super) struct ProfileFiles {
    pub credentials: PathBuf,
    pub config: PathBuf,
}

impl ProfileFiles {
    /// The places that the environment names, or those in the home folder.
    pub fn find(var: &dyn Fn(&str) -> Option<String>) -> Self {
        let home = PathBuf::from(var("HOME").unwrap_or_default()).join(".aws");
        let place = |name: &str, file: &str| var(name).map_or_else(|| home.join(file), PathBuf::from);
        Self {
            credentials: place("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: place("AWS_CONFIG_FILE", "config"),
        }
    }

    /// Reads the profile `name`; an absent one is empty unless `wanted` by name.
    ///
    /// # Errors
    /// A file that is not a profile file, or a profile that is `wanted` and not there.
    pub fn read(&self, name: &str, wanted: bool) -> Result<Profile, Fault> {
        let credentials = sections(&self.credentials)?;
        let config = sections(&self.config)?;
        let in_config = if name == "default" { name.to_owned() } else { format!("profile {name}") };
        let found = [config.get(&in_config), credentials.get(name)];
        if wanted && found.iter().all(Option::is_none) {
            return Err(self.missing(name, credentials.keys().chain(config.keys())));
        }
        // What both files say is taken from the credentials.
        let values = found.into_iter().flatten().flat_map(Clone::clone).collect();
        Ok(Profile { name: name.into(), values })
    }

    fn missing<'a>(&self, name: &str, found: impl Iterator<Item = &'a String>) -> Fault {
        let mut found: Vec<&str> = found.map(|s| s.strip_prefix("profile ").unwrap_or(s)).collect();
        found.sort_unstable();
        found.dedup();
        let (credentials, config) = (self.credentials.display(), self.config.display());
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        let reason = format!("`{name}` is neither in {credentials} nor in {config}; profiles found: {found}");
        Fault::new(Field::Profile, reason)
    }
}

/// The sections of a file with their values; an absent file has none.
fn sections(path: &PathBuf) -> Result<HashMap<String, HashMap<String, String>>, Fault> {
    let unreadable = |reason: String| Fault::new(Field::Profile, format!("{}: {reason}", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(e) => return Err(unreadable(e.to_string())),
    };
    let mut rules = IniDefault::default();
    rules.case_sensitive = true;
    rules.delimiters = vec!['='];
    rules.comment_symbols = vec!['#', ';'];
    let mut ini = Ini::new_from_defaults(rules);
    // A secret may hold any character, and an indented line belongs to the value above it.
    ini.set_inline_comment_symbols(Some(&[]));
    ini.set_multiline(true);
    let parsed = ini.read(text).map_err(unreadable)?;
    let values = |section: HashMap<String, Option<String>>| {
        section.into_iter().filter_map(|(key, value)| Some((key.to_lowercase(), value?))).collect()
    };
    Ok(parsed
        .into_iter()
        .map(|(name, section)| (normal(&name), values(section.into_iter().collect())))
        .collect())
}

/// `profile  lab` is `profile lab`.
fn normal(section: &str) -> String {
    section.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Profile {
    /// A value; empty ones count as absent.
    pub fn get(&self, key: &str) -> Option<String> {
        self.values.get(key).filter(|value| !value.trim().is_empty()).cloned()
    }

    /// A value of the indented block `s3 =`.
    pub fn s3(&self, key: &str) -> Option<String> {
        self.values.get("s3")?.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    }

    /// The keys that the profile holds, if any.
    ///
    /// # Errors
    /// Half a pair, or a profile that says to fetch its keys in a way that is not supported.
    pub fn keys(&self) -> Result<Option<S3Keys>, Fault> {
        let name = &self.name;
        match (self.get("aws_access_key_id"), self.get("aws_secret_access_key")) {
            (Some(id), Some(secret)) => Ok(Some(S3Keys {
                access_key_id: id,
                secret_access_key: secret.into(),
                session_token: self.get("aws_session_token").map(Into::into),
            })),
            (None, None) => match self.fetched_by() {
                Some(way) => Err(Fault::new(
                    Field::Profile,
                    format!(
                        "`{name}` fetches its keys by `{way}`, which is not supported: run \
                         `eval \"$(aws configure export-credentials --profile {name} --format env)\"` first"
                    ),
                )),
                None => Ok(None),
            },
            (Some(_), None) => {
                Err(Fault::new(Field::SecretKey, format!("profile `{name}` has no aws_secret_access_key")))
            }
            (None, Some(_)) => {
                Err(Fault::new(Field::AccessKey, format!("profile `{name}` has no aws_access_key_id")))
            }
        }
    }

    fn fetched_by(&self) -> Option<&'static str> {
        ["credential_process", "sso_session", "sso_start_url", "role_arn", "login_session"]
            .into_iter()
            .find(|way| self.get(way).is_some())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn files(credentials: &str, config: &str) -> (tempfile::TempDir, ProfileFiles) {
        let folder = tempfile::tempdir().unwrap();
        let files = ProfileFiles { credentials: folder.path().join("c"), config: folder.path().join("o") };
        std::fs::write(&files.credentials, credentials).unwrap();
        std::fs::write(&files.config, config).unwrap();
        (folder, files)
    }

    #[test]
    fn both_files_make_a_profile() {
        let (_folder, files) = files(
            "# keys\n[default]\naws_access_key_id=A\naws_secret_access_key = s#e;c=r/et+\n\n[lab]\nAWS_ACCESS_KEY_ID = B\n\
             aws_secret_access_key = t\naws_session_token = x==\n",
            "[default]\nregion = eu-west-1\n[profile lab]\nregion = eu-central-1\ns3 =\n  addressing_style = path\n  \
             endpoint_url = http://lab:9000\ndynamodb =\n  endpoint_url = http://other\n",
        );
        let default = files.read("default", false).unwrap();
        let keys = default.keys().unwrap().unwrap();
        assert_eq!((keys.access_key_id.as_str(), keys.secret_access_key.reveal()), ("A", "s#e;c=r/et+"));
        assert_eq!(default.get("region").as_deref(), Some("eu-west-1"));
        let lab = files.read("lab", true).unwrap();
        assert_eq!(lab.keys().unwrap().unwrap().session_token.unwrap().reveal(), "x==");
        assert_eq!(lab.s3("addressing_style").as_deref(), Some("path"));
        assert_eq!(lab.s3("endpoint_url").as_deref(), Some("http://lab:9000"));
        assert_eq!(lab.get("endpoint_url"), None, "another service's endpoint is not ours");
    }

    #[test]
    fn a_profile_that_is_not_there_is_named_with_those_that_are() {
        let (_folder, files) = files("[lab]\n", "[profile clinic]\n");
        let fault = files.read("labb", true).unwrap_err();
        assert_eq!(fault.field, Field::Profile);
        assert!(fault.reason.contains("clinic, lab"), "{}", fault.reason);
        assert!(files.read("default", false).unwrap().keys().unwrap().is_none());
    }

    #[test]
    fn half_a_pair_and_fetched_keys_are_refused_with_a_way_out() {
        let (_folder, files) =
            files("[half]\naws_access_key_id = A\n", "[profile role]\nrole_arn = arn:aws:iam::1:role/x\n");
        assert_eq!(files.read("half", true).unwrap().keys().unwrap_err().field, Field::SecretKey);
        let fault = files.read("role", true).unwrap().keys().unwrap_err();
        assert!(fault.reason.contains("export-credentials --profile role"), "{}", fault.reason);
    }

    #[test]
    fn a_broken_file_is_named_with_its_line_and_without_what_it_holds() {
        let (_folder, files) = files("[default]\naws_secret_access_key = hush\n[broken\n", "");
        let fault = files.read("default", false).unwrap_err();
        assert!(fault.reason.contains("line 3") && !fault.reason.contains("hush"), "{}", fault.reason);
    }
}
