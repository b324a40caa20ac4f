use super::*;

fn files(paths: &[PathBuf]) -> Trust {
    Trust {
        system: false,
        ca_files: paths.to_vec(),
    }
}

#[test]
fn the_system_has_authorities_even_where_it_has_no_store() {
    assert!(Trust::default().read().unwrap().len() > 20);
}

#[test]
fn a_file_that_cannot_be_trusted_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let trust = files(std::slice::from_ref(&path));
    let shown = path.display().to_string();
    let error = trust.read().unwrap_err();
    assert!(matches!(&error, TrustError::Read { .. }) && error.to_string().contains(&shown));
    for content in [
        "",
        "no certificate here",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nAAAA\n",
    ] {
        std::fs::write(&path, content).unwrap();
        let error = trust.read().unwrap_err();
        assert!(matches!(&error, TrustError::Certificate { .. }), "{error}");
        assert!(error.to_string().contains(&shown));
    }
}

#[test]
fn to_trust_nobody_is_an_error() {
    assert!(matches!(files(&[]).read(), Err(TrustError::Nobody)));
}

#[test]
fn a_file_replaced_by_one_of_the_same_length_has_another_stamp() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let trust = files(std::slice::from_ref(&path));
    let missing = trust.stamps();
    std::fs::write(&path, "one").unwrap();
    let first = trust.stamps();
    assert_eq!(first, trust.stamps());
    let other = folder.path().join("new");
    std::fs::write(&other, "two").unwrap();
    std::fs::rename(other, &path).unwrap();
    let second = trust.stamps();
    assert!(missing != first && first != second);
}
