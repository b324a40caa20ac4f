//! Sharing the machine with other sessions: what is claimed, and what is left of a wish.

use std::sync::Arc;

use super::{LocalHost, Wanted};
use crate::claims::registry::{self, Entry};
use crate::claims::{Claimant, Claims, withhold};
use crate::fs::Lock;
use crate::host::HostError;
use crate::net::IpNet;

/// Whether the session asks for something else than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Changed,
    Unchanged,
}

impl LocalHost {
    /// Claims for the session, or gives up what it has.
    pub(super) async fn claim_for_itself(&mut self, claims: &Claims) -> Result<(), HostError> {
        if claims.is_empty() {
            return self.give_up().await;
        }
        let claims = claims.clone().checked().map_err(HostError::Claims)?;
        let held = Arc::clone(&self.claims);
        let (sys, session) = (self.sys.clone(), self.session.clone());
        self.blocking(move |files| {
            if files.has_ended() {
                return Err(HostError::Ended);
            }
            let mut held = held.lock();
            if held.as_ref().is_some_and(|entry| *entry.claims() == claims) {
                return Ok(());
            }
            let _machine = registry::lock_machine(&sys)?;
            *held = Some(Entry::claim(&sys, &session, claims, held.as_ref())?);
            Ok(())
        })
        .await
    }

    /// Gives up what the session has, so that others get it.
    pub(super) async fn give_up(&mut self) -> Result<(), HostError> {
        let held = Arc::clone(&self.claims);
        self.blocking(move |_| {
            if let Some(entry) = held.lock().take() {
                entry.remove();
            }
            Ok(())
        })
        .await
    }

    /// Keeps other sessions from claiming, making links and repairing.
    pub(super) async fn lock_machine(&self) -> Result<Lock, HostError> {
        let sys = self.sys.clone();
        self.blocking(move |_| registry::lock_machine(&sys)).await
    }

    /// Works out anew what is left of the wish beside the sessions that came before.
    pub(super) async fn share(&mut self, wish: Wish) -> Result<(), HostError> {
        let held = Arc::clone(&self.claims);
        let others = self.others().await?;
        let (own, earlier) = {
            let held = held.lock();
            let own = held.as_ref().map(|entry| entry.claims().clone());
            (own, Entry::earlier(held.as_ref(), others))
        };
        if wish == Wish::Unchanged && earlier == self.wanted.earlier {
            return Ok(());
        }
        let asked = std::mem::take(&mut self.wanted.asked);
        let own = own.unwrap_or_default();
        let (left, withheld) = withhold(asked.clone(), &own, &earlier);
        self.wanted = Wanted {
            asked,
            earlier,
            dns: left.dns,
            hosts: Arc::new(left.hosts),
            withheld,
        };
        Ok(())
    }

    /// Lists the networks that other sessions have.
    pub(super) async fn networks_of_others(&self) -> Result<Vec<IpNet>, HostError> {
        let others = self.others().await?;
        let networks = others.into_iter().map(|other| other.claims.networks);
        Ok(networks.flatten().collect())
    }

    async fn others(&self) -> Result<Vec<Claimant>, HostError> {
        let (sys, session) = (self.sys.clone(), self.session.clone());
        self.blocking(move |_| registry::others(&sys, &session).map_err(HostError::Files))
            .await
    }
}
