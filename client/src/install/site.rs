//! The cluster that something is installed in, as the kubeconfig names it.

use std::sync::Arc;

use kubebridge_platform::dns::read_host_dns;
use kubebridge_platform::sys::Sys;
use tokio::time::Instant;

use super::record::Record;
use crate::cli::Global;
use crate::cluster::{Cluster, Environment, Source};
use crate::failure::{Exit, Failure};
use crate::originals::Originals;
use crate::progress::Reporter;

/// The cluster, and whom to tell.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) cluster: Cluster,
    /// The namespace of the kubeconfig's context.
    pub(super) namespace: String,
    pub(super) reporter: Reporter,
}

impl Site {
    /// Reads the kubeconfig and asks the API server for its version.
    pub(super) async fn open(global: &Global) -> Result<Self, Failure> {
        let source = Source {
            file: global.kubeconfig.clone(),
            context: global.context.clone(),
            environment: Environment::of_process(),
        };
        let (source, namespace) = source.settle().await?;
        let originals = match read_host_dns(&Sys::default()).await {
            Ok(found) => Originals::new(&found.servers, &found.search),
            Err(_) => Originals::new(&[], &[]),
        };
        let cluster = Cluster::load(source, Arc::new(originals)).await?;
        let reporter = Reporter::stderr(global.progress);
        let started = Instant::now();
        let version = cluster.version().await?;
        reporter.step(
            "cluster",
            &format!("{cluster}, Kubernetes {version}"),
            started.elapsed(),
        );
        Ok(Self {
            cluster,
            namespace,
            reporter,
        })
    }

    /// What is kept there about an installation.
    pub(super) async fn record(&self) -> Result<Option<Record>, Failure> {
        let identity = Record::identity();
        let found = match self.cluster.read(&identity).await {
            Ok(found) => found,
            Err(problem) => {
                let verbs = ["get", "create", "patch"];
                let problem = self.cluster.explain(problem, &verbs, &[identity]).await;
                return Err(problem.into());
            }
        };
        let read = found.map(|found| Record::read(&found)).transpose();
        read.map_err(|error| {
            Failure::new(Exit::Other, error).with_hint(
                "a record that cannot be read can be removed: kubectl delete configmap -n kubebridge kubebridge-install; then install again",
            )
        })
    }
}
