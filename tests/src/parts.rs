//! Where the components of the lab and the programs under test are.
//!
//! Installs nothing: a missing part is an error that names it and `tests/setup`.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// The folder of this crate, where the scripts and the C program are.
pub const TESTS: &str = env!("CARGO_MANIFEST_DIR");

/// The components named by `tests/setup --paths`.
#[derive(Debug, Clone)]
pub struct Parts(BTreeMap<String, PathBuf>);

impl Parts {
    /// Asks `tests/setup` for the paths.
    pub fn find() -> Result<Self> {
        let script = Path::new(TESTS).join("setup");
        let said = Command::new(&script)
            .arg("--paths")
            .output()
            .with_context(|| format!("run {} --paths", script.display()))?;
        ensure!(
            said.status.success(),
            "{} --paths failed: {}",
            script.display(),
            String::from_utf8_lossy(&said.stderr)
        );
        let paths = String::from_utf8(said.stdout)?
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, path)| (name.to_owned(), PathBuf::from(path)))
            .collect();
        Ok(Self(paths))
    }

    /// The path of the component `name`, which must be there.
    pub fn path(&self, name: &str) -> Result<&Path> {
        let path = self
            .0
            .get(name)
            .with_context(|| format!("tests/setup --paths does not name {name}"))?;
        ensure!(
            path.exists(),
            "{name} is missing ({}): run tests/setup",
            path.display()
        );
        Ok(path)
    }
}

/// Compiles one of the C programs of this crate to `program`.
pub fn compile(compiler: &str, options: &[&str], source: &str, program: &Path) -> Result<()> {
    let done = Command::new(compiler)
        .args(["-Wall", "-O2"])
        .args(options)
        .arg(Path::new(TESTS).join("c").join(source))
        .arg("-o")
        .arg(program)
        .output()
        .with_context(|| format!("run {compiler}: is it installed? see tests/setup"))?;
    ensure!(
        done.status.success(),
        "{compiler} {source}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(())
}

/// A program of the workspace: from `KUBEBRIDGE_BIN_DIR`, else beside the running test binary.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = env::current_exe()?;
    // A test is one folder below the programs.
    let beside = own.ancestors().skip(1).take(2).map(Path::to_owned);
    let folders: Vec<PathBuf> = match env::var_os("KUBEBRIDGE_BIN_DIR") {
        Some(folder) => vec![folder.into()],
        None => beside.collect(),
    };
    let mut programs = folders.iter().map(|folder| folder.join(name));
    let found = programs.find(|program| program.is_file());
    found.with_context(|| {
        format!(
            "{name} is not built in {folders:?}: run tests/run, or cargo build --workspace --bins"
        )
    })
}
