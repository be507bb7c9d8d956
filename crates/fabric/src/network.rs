//! Reliable messages between hosts, over one of the datagram devices that this build has.

use proto::reliability::{Config, Endpoint, PeerId};

use crate::Error;
use crate::reliable::{DatagramDevice, Doorbell, JobKey, NetworkCounters, NoCard, Program, Protection, Reliable, Watch};
use crate::udp::Udp;
use crate::verbs::Verbs;

/// A process on the network, over the device that it was opened with. All is as [`Reliable`] says.
#[derive(Debug)]
pub enum Network {
    Udp(Reliable<Udp>),
    Verbs(Reliable<Verbs>),
}

impl From<Reliable<Udp>> for Network {
    fn from(node: Reliable<Udp>) -> Network {
        Network::Udp(node)
    }
}

impl From<Reliable<Verbs>> for Network {
    fn from(node: Reliable<Verbs>) -> Network {
        Network::Verbs(node)
    }
}

/// Forwards each call to the device's own node.
macro_rules! forward {
    ($(fn $name:ident(&$($change:ident)? $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)*) => {
        $(#[inline]
        pub fn $name(&$($change)? self $(, $argument: $kind)*) $(-> $result)? {
            match self {
                Network::Udp(node) => node.$name($($argument),*),
                Network::Verbs(node) => node.$name($($argument),*),
            }
        })*
    };
}

impl Network {
    /// [`Reliable::over`] `device`.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn over<D: DatagramDevice>(
        device: D,
        me: PeerId,
        epoch: u32,
        key: &JobKey,
        protection: Protection,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Network, Error>
    where
        Network: From<Reliable<D>>,
    {
        Ok(Reliable::over(device, me, epoch, key, protection, adjust)?.into())
    }

    forward! {
        fn set_key(&mut, key: &JobKey, protection: Protection);
        fn card(&) -> String;
        fn connect(&mut, peer: PeerId, card: &str) -> Result<(), NoCard>;
        fn set_foreign_key(&mut, key: &JobKey, protection: Protection);
        fn add_foreign(&mut, peer: PeerId, number: u32, card: &str, key: &JobKey, protection: Protection) -> bool;
        fn now_ns(&) -> u64;
        fn requests(&mut) -> (u64, &mut Endpoint);
        fn endpoint_mut(&mut) -> &mut Endpoint;
        fn endpoint(&) -> &Endpoint;
        fn counters(&) -> NetworkCounters;
        fn poll(&mut, program: &mut impl Program) -> usize;
        fn take_in(&mut, program: &mut impl Program) -> usize;
        fn is_due(&) -> bool;
        fn is_pressing(&) -> bool;
        fn flush(&mut, now_ns: u64, program: &mut impl Program);
        fn flush_one(&mut, now_ns: u64, program: &mut impl Program);
        fn abandon(&mut, now_ns: u64, peers: &[PeerId], program: &mut impl Program);
        fn deadline_ns(&) -> Option<u64>;
        fn wait(&mut, timeout_ns: Option<u64>);
        fn arm(&mut) -> bool;
        fn doorbell(&) -> Doorbell;
        fn watch(&) -> Result<Watch, Error>;
    }
}
