#![allow(clippy::unwrap_used)]
use super::*;
use std::collections::HashMap;

/// Settings by `options` where only `variables` are set, and profiles are those of `credentials`.
fn resolve(options: &S3Options, variables: &[(&str, &str)], credentials: &str) -> Result<S3Settings, Fault> {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(home.path().join(".aws/credentials"), credentials).unwrap();
    let mut all: HashMap<&str, &str> = variables.iter().copied().collect();
    all.insert("HOME", home.path().to_str().unwrap());
    S3Settings::resolve_in(options, &|name| all.get(name).map(|v| (*v).to_owned()))
}

fn source(settings: &S3Settings) -> (&str, &str) {
    match &settings.credentials {
        Credentials::Anonymous => ("anonymous", ""),
        Credentials::Keys { keys, source } => (source, &keys.access_key_id),
        Credentials::Role { source, .. } => (source, ""),
    }
}

const ENVIRONMENT: [(&str, &str); 3] =
    [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_REGION", "eu-west-1")];
const PROFILES: &str = "[default]\naws_access_key_id = D\naws_secret_access_key = hush\nregion = eu-north-1\n\
                        [lab]\naws_access_key_id = L\naws_secret_access_key = hush\nregion = eu-central-1\n";

#[test]
fn options_go_before_the_environment_and_that_before_the_default_profile() {
    let keys = S3Keys {
        access_key_id: "P".into(),
        secret_access_key: "hush".to_owned().into(),
        session_token: None,
    };
    let program = S3Options { keys: Some(keys), region: Some("r".into()), ..Default::default() };
    let settings = resolve(&program, &ENVIRONMENT, PROFILES).unwrap();
    assert_eq!((source(&settings), settings.region.as_str()), (("the program", "P"), "r"));
    let settings = resolve(&S3Options::default(), &ENVIRONMENT, PROFILES).unwrap();
    assert_eq!((source(&settings), settings.region.as_str()), (("the environment", "E"), "eu-west-1"));
    let settings = resolve(&S3Options::default(), &[], PROFILES).unwrap();
    assert_eq!((source(&settings), settings.region.as_str()), (("profile `default`", "D"), "eu-north-1"));
}

#[test]
fn a_profile_by_name_goes_before_keys_of_the_environment_where_the_options_name_it() {
    let lab = S3Options { profile: Some("lab".into()), ..Default::default() };
    let settings = resolve(&lab, &ENVIRONMENT, PROFILES).unwrap();
    assert_eq!((source(&settings), settings.region.as_str()), (("profile `lab`", "L"), "eu-central-1"));
    let by_environment = [("AWS_PROFILE", "lab"), ENVIRONMENT[0], ENVIRONMENT[1]];
    let settings = resolve(&S3Options::default(), &by_environment, PROFILES).unwrap();
    assert_eq!(source(&settings), ("the environment", "E"));
    let settings = resolve(&S3Options::default(), &by_environment[..1], PROFILES).unwrap();
    assert_eq!(source(&settings), ("profile `lab`", "L"));
}

#[test]
fn what_is_missing_is_named() {
    let field =
        |options: &S3Options, variables: &[(&str, &str)]| resolve(options, variables, "").unwrap_err().field;
    let none = S3Options::default();
    assert_eq!(field(&none, &ENVIRONMENT[..2]), Field::Region);
    assert_eq!(field(&none, &[ENVIRONMENT[0], ENVIRONMENT[2]]), Field::SecretKey);
    assert_eq!(field(&none, &[ENVIRONMENT[1], ENVIRONMENT[2]]), Field::AccessKey);
    assert_eq!(field(&none, &[("AWS_ENDPOINT_URL", "http://127.0.0.1:1")]), Field::Keys);
    assert_eq!(field(&none, &[ENVIRONMENT[2], ("AWS_EC2_METADATA_DISABLED", "true")]), Field::Keys);
    assert_eq!(field(&none, &[("AWS_PROFILE", "lab"), ENVIRONMENT[2]]), Field::Profile);
}

#[test]
fn a_server_other_than_aws_needs_no_region_and_a_public_bucket_no_keys() {
    let public =
        S3Options { anonymous: Some(true), endpoint: Some("http://h:1".into()), ..Default::default() };
    let settings = resolve(&public, &[], "").unwrap();
    assert_eq!((source(&settings).0, settings.region.as_str()), ("anonymous", "us-east-1"));
}

#[test]
fn the_environment_may_say_that_no_keys_are_wanted_and_a_setting_goes_before_it() {
    let environment = [&ENVIRONMENT[..], &[("AWS_SKIP_SIGNATURE", "true")]].concat();
    let of = |options: &S3Options| source(&resolve(options, &environment, "").unwrap()).0.to_owned();
    assert_eq!(of(&S3Options::default()), "anonymous");
    let signed = S3Options { anonymous: Some(false), ..Default::default() };
    assert_eq!(of(&signed), "the environment");
}

#[test]
fn an_endpoint_without_scheme_or_with_a_password_is_refused_and_not_repeated() {
    for (text, shown) in
        [("127.0.0.1:8333", true), ("ftp://h", true), ("http://k:hush@h", false), ("k:hush@h:1", false)]
    {
        let options = S3Options { endpoint: Some(text.into()), ..Default::default() };
        let fault = resolve(&options, &ENVIRONMENT, "").unwrap_err();
        assert_eq!(fault.field, Field::Endpoint, "{text}");
        assert_eq!(
            (fault.reason.contains(text), fault.reason.contains("hush")),
            (shown, false),
            "{}",
            fault.reason
        );
    }
}

#[test]
fn containers_have_roles_and_so_have_machines_on_aws() {
    let region = ENVIRONMENT[2];
    let identity = [region, ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "arn")];
    let task = [region, ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")];
    let role = |variables: &[(&str, &str)]| {
        source(&resolve(&S3Options::default(), variables, "").unwrap()).0.to_owned()
    };
    assert_eq!(role(&identity), "AWS_WEB_IDENTITY_TOKEN_FILE");
    assert_eq!(role(&task), "the role of this container");
    assert_eq!(role(&[region]), "the role of this machine");
}

#[test]
fn nothing_secret_is_in_what_debug_shows() {
    let settings = resolve(&S3Options::default(), &ENVIRONMENT, PROFILES).unwrap();
    assert!(!format!("{settings:?}").contains("hush"));
}
