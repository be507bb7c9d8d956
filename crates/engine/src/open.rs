//! The one place that names the transports of this build.

use crate::failed::Failed;
use fabric::Network;
use fabric::reliable::{JobKey, Protection};
use fabric::udp::{NetFilter, Setup, Udp};
use fabric::verbs::{self, Connections, Hybrid, InPlaceUse, Keeps, Ports, Rendezvous, Terms, Unusable};
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
    Ok(Reach { memory: matches!(word, "auto" | "shm"), network: word != "shm", word })
}

fn filter() -> Result<NetFilter, Failed> {
    let net = params::NET.value()?;
    let filter = if net.is_empty() { Ok(NetFilter::default()) } else { net.parse() };
    filter.map_err(|e| launch::Error::new(format!("WHIMBREL_NET: {e}")).into())
}

/// The addresses under which processes of other hosts reach this one.
///
/// # Errors
/// `WHIMBREL_NET` is no network filter, or the system does not tell.
pub fn addresses() -> Result<Vec<std::net::IpAddr>, Failed> {
    Ok(fabric::udp::addresses(&filter()?)?)
}

/// How what is said of an RDMA port that can be used begins.
const USABLE: &str = "usable: ";

/// What `whimbrel info --fabrics` prints of one way to reach others.
pub struct FabricReport {
    /// As `WHIMBREL_FABRIC` names it.
    pub name: &'static str,
    /// Why it is used, or is not.
    pub chosen: String,
    /// Its devices or addresses, and what each is, or why it cannot be used.
    pub devices: Vec<(String, String)>,
}

impl FabricReport {
    /// Of the RDMA ports that can be used: names, and what they are.
    pub fn usable_ports(&self) -> impl Iterator<Item = (&str, &str)> {
        self.devices.iter().filter_map(|(name, said)| Some((name.as_str(), said.strip_prefix(USABLE)?)))
    }
}

/// Every way to reach others that this build has, and what this machine has of it.
///
/// # Errors
/// A variable has a value that is none of its own.
pub fn fabrics() -> Result<Vec<FabricReport>, Failed> {
    let (word, filter) = (params::FABRIC.value()?, filter()?);
    let sockets = fabric::udp::addresses(&filter)?.iter().map(|ip| (ip.to_string(), "usable".to_owned())).collect();
    let ports = verbs::report(&|names, ip| filter.allows(names, ip));
    let wanted = match (word, &ports) {
        ("auto", Ok(ports)) => ports.iter().any(|port| port.by_itself),
        ("verbs+udp", Ok(ports)) => ports.iter().any(|port| port.facts.is_ok()),
        _ => false,
    };
    // Whether a process that starts now gets them, or why it does not.
    let refused = if wanted { over_ports((0, 1), Protection::Auth, &filter, &|_| ())?.err().map(|why| why.to_string()) } else { None };
    let rdma = word == "verbs" || wanted && refused.is_none();
    let over = match (params::VERBS.value()?, word) {
        ("rc", "verbs") => ", over connections (WHIMBREL_VERBS=rc)",
        ("ud", _) => ", as datagrams (WHIMBREL_VERBS=ud)",
        _ => ", as datagrams, and over connections to peers that earn them (WHIMBREL_VERBS=hybrid)",
    };
    let said = |port: verbs::Said| match port.facts {
        Ok(facts) => (port.name, format!("{USABLE}{facts}")),
        Err(why) => (port.name, format!("not usable: {why}")),
    };
    let devices = match ports {
        Ok(ports) => ports.into_iter().map(said).collect(),
        Err(why) => vec![("none".to_owned(), why)],
    };
    let forced = |name: &str| format!("{}used: WHIMBREL_FABRIC={word}", if word.split('+').any(|one| one == name) { "" } else { "not " });
    let shm = if word == "auto" { "used between ranks of one host".to_owned() } else { forced("shm") };
    let udp = match (word, rdma) {
        ("auto", false) => "used between hosts".to_owned(),
        ("auto", true) => "used between hosts where a port does not reach, or does not answer".to_owned(),
        _ => forced("udp"),
    };
    let verbs = match (word, rdma) {
        _ if refused.is_some() => format!("not used: {}", refused.unwrap_or_default()),
        ("auto", true) => format!("used between hosts{over}"),
        ("auto", false) => "not used: there is no port of hardware that has datagrams".to_owned(),
        ("verbs+udp", false) => format!("not used, in spite of WHIMBREL_FABRIC={word}: there is no port"),
        (_, true) => forced("verbs") + over,
        (_, false) => forced("verbs"),
    };
    Ok(vec![
        FabricReport { name: "shm", chosen: shm, devices: Vec::new() },
        FabricReport { name: "udp", chosen: udp, devices: sockets },
        FabricReport { name: "verbs", chosen: verbs, devices },
    ])
}

/// The RDMA port that connections would use, and what registering the buffer of a short message costs there, by the message's length. `None` without one.
///
/// # Errors
/// `WHIMBREL_NET` is no network filter.
#[allow(clippy::type_complexity)]
pub fn registration_costs() -> Result<Option<(String, Vec<(usize, memory::usage::MessageCosts)>)>, Failed> {
    let filter = filter()?;
    Ok(verbs::registration_costs(&|names, ip| filter.allows(names, ip)).ok())
}

/// What of the program's memory stays registered.
fn keeps() -> Result<Keeps, Failed> {
    Ok(Keeps {
        bytes_max: params::REGISTERED_MAX.value()?,
        in_place: match params::SEND_IN_PLACE.value()? {
            "off" => InPlaceUse::Never,
            "always" => InPlaceUse::Always,
            _ => InPlaceUse::Measured,
        },
        overlaps: params::OVERLAP_PINNING.value()?,
        rendezvous: match params::VERBS_RENDEZVOUS.value()? {
            "write" => Rendezvous::Write,
            "pieces" => Rendezvous::Pieces,
            _ => Rendezvous::Read,
        },
    })
}

/// When peers get connections beside datagrams.
fn terms() -> Result<Terms, Failed> {
    let period_ms = params::VERBS_PERIOD.value()? as u64;
    Ok(Terms { connections_max: params::VERBS_CONNECTIONS.value()? as u32, price: params::VERBS_PRICE.value()? as u32, period_ns: period_ms * 1_000_000 })
}

/// Opens this process' sockets, or its queue pairs. The key follows: rank 0 may have to make it.
///
/// # Errors
/// A variable is no network filter, the system refuses sockets, or there is no device that is asked for.
pub(crate) fn network(me: u32, protection: Protection, adjust: impl Fn(&mut proto::reliability::Config)) -> Result<Network, Failed> {
    // What was meant for a process of another job, or for an earlier one of this number, is none of this one's.
    let incarnation = (RandomState::new().hash_one(me) as u32).max(1);
    let (word, filter) = (params::FABRIC.value()?, filter()?);
    let unusable = |error| match error {
        Unusable::Words(why) => launch::Error::new(format!("WHIMBREL_FABRIC={word}: {why}")).into(),
        Unusable::Refused(error) => Failed::from(error),
    };
    match (word, params::VERBS.value()?, protection) {
        ("verbs", "rc", Protection::Encrypt) => {
            let why = "WHIMBREL_PROTECTION=encrypt: connections of RDMA devices (WHIMBREL_VERBS=rc) are not encrypted; datagrams (ud) are";
            return Err(launch::Error::new(why).into());
        }
        ("verbs", "rc", _) => {
            let allows = |names: &[&str], ip| filter.allows(names, ip);
            return Ok(Connections::open(&allows, me, incarnation, &nobody()?, keeps()?, adjust).map_err(unusable)?.into());
        }
        ("verbs", ..) => return over_ports((me, incarnation), protection, &filter, &adjust)?.map_err(unusable),
        // Others reach a process without ports over its sockets.
        ("auto" | "verbs+udp", ..) => {
            if let Ok(network) = over_ports((me, incarnation), protection, &filter, &adjust)? {
                return Ok(network);
            }
        }
        _ => {}
    }
    Ok(Network::over(Udp::open(&setup(&filter)?)?, me, incarnation, &nobody()?, protection, &adjust)?)
}

/// The key of no job.
fn nobody() -> Result<JobKey, fabric::Error> {
    JobKey::random().map_err(|e| fabric::Error::System { call: "reading random numbers", errno: e.raw_os_error().unwrap_or(0) })
}

fn setup(filter: &NetFilter) -> Result<Setup, Failed> {
    Ok(Setup { filter: filter.clone(), endpoints: params::ENDPOINTS.value()? as u8, ..Setup::default() })
}

/// Opens the ports of RDMA devices, and sockets beside them where they are not asked for alone; or says why there are none.
///
/// # Errors
/// A variable has a value that is none of its own.
fn over_ports(
    (me, incarnation): (u32, u32),
    protection: Protection,
    filter: &NetFilter,
    adjust: &impl Fn(&mut proto::reliability::Config),
) -> Result<Result<Network, Unusable>, Failed> {
    let (word, over, keeps, terms, setup, nobody) = (params::FABRIC.value()?, params::VERBS.value()?, keeps()?, terms()?, setup(filter)?, nobody()?);
    let allows = |names: &[&str], ip| filter.allows(names, ip);
    let open = || {
        let device = Ports::open(&allows, word != "auto", (word != "verbs").then_some(&setup))?;
        match (over, protection) {
            // What is encrypted goes in datagrams alone.
            ("ud", _) | (_, Protection::Encrypt) => Ok(Network::over(device, me, incarnation, &nobody, protection, adjust)?),
            _ => Ok(Hybrid::over(device, terms, (me, incarnation), &nobody, protection, keeps, adjust)?.into()),
        }
    };
    Ok(open())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::process::Command;

    /// Set where this test's own program is run once more.
    const AGAIN: &str = "ENGINE_OPEN_TESTS_AGAIN";
    /// Before what such a program prints.
    const SIGN: &str = "incarnation: ";

    /// What the card says that others will know this process by.
    fn incarnation() -> u32 {
        let card = network(0, Protection::Crc, |_| ()).expect("a socket").card();
        card.split(' ').next().and_then(|word| word.parse().ok()).expect("a card begins with its incarnation")
    }

    #[test]
    fn each_process_has_another_incarnation() {
        if std::env::var_os(AGAIN).is_some() {
            println!("{SIGN}{}", incarnation());
            return;
        }
        let name = "open::tests::each_process_has_another_incarnation";
        let other = || {
            let program = std::env::current_exe().expect("this program's name");
            let output = Command::new(program).args(["--exact", name, "--nocapture"]).env(AGAIN, "1").output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let at = text.find(SIGN).unwrap_or_else(|| panic!("it prints an incarnation: {text}"));
            let word: String = text[at + SIGN.len()..].chars().take_while(char::is_ascii_digit).collect();
            word.parse::<u32>().expect("a number")
        };
        let seen: BTreeSet<u32> = (0..3).map(|_| other()).chain((0..3).map(|_| incarnation())).collect();
        // Two of six random numbers of 32 bits are equal once in 286 million times.
        assert_eq!(seen.len(), 6, "{seen:?}");
        assert!(!seen.contains(&0), "no incarnation is 0");
    }
}
