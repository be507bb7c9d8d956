//! The one place that names the transports of this build.

use crate::process::Failed;
use fabric::Network;
use fabric::reliable::{JobKey, Protection};
use fabric::udp::{NetFilter, Setup, Udp};
use std::hash::{BuildHasher, RandomState};

/// How processes of this job may reach each other.
pub(crate) struct Reach {
    /// Through memory, on one host.
    pub memory: bool,
    /// Through the network.
    pub network: bool,
    /// What the user has said.
    pub word: &'static str,
}

/// What `WHIMBREL_FABRIC` allows.
///
/// # Errors
/// It is none of the table's words.
pub(crate) fn reach() -> Result<Reach, Failed> {
    let word = params::FABRIC.value()?;
    Ok(Reach { memory: word != "udp", network: word != "shm", word })
}

/// Opens this process' sockets. The key follows: rank 0 may have to make it.
///
/// # Errors
/// A variable is no network filter, or the system refuses sockets.
pub(crate) fn network(me: u32, protection: Protection, adjust: impl FnOnce(&mut proto::reliability::Config)) -> Result<Network, Failed> {
    let net = params::NET.value()?;
    let filter = if net.is_empty() { Ok(NetFilter::default()) } else { net.parse() };
    let filter = filter.map_err(|e| launch::Error::new(format!("WHIMBREL_NET: {e}")))?;
    let setup = Setup { filter, endpoints: params::ENDPOINTS.value()? as u8, ..Setup::default() };
    let nobody = JobKey::random().map_err(|e| fabric::Error::System { call: "reading random numbers", errno: e.raw_os_error().unwrap_or(0) })?;
    // What was meant for a process of another job, or for an earlier one of this number, is none of this one's.
    let incarnation = (RandomState::new().hash_one(me) as u32).max(1);
    Ok(Network::over(Udp::open(&setup)?, me, incarnation, &nobody, protection, adjust)?)
}
