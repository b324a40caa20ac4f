//! `Probe`: what would become of a flow, told by the data plane.

use kubebridge_proto::probe::ProbeRequest;
use kubebridge_proto::v1;
use tonic::Status;

use super::{Service, invalid};

pub(super) async fn probe(
    service: &Service,
    wire: v1::ProbeRequest,
) -> Result<v1::ProbeResponse, Status> {
    let ProbeRequest {
        session_id,
        protocol,
        destination,
    } = wire.try_into().map_err(|error| invalid(&error))?;
    let session = service.session(&session_id)?.lease();
    let probed = service.data.probe(&session, protocol, destination).await;
    let probed = probed.map_err(|_| {
        Status::resource_exhausted("the session dials too often: try again in a second")
    })?;
    Ok(probed.into())
}
