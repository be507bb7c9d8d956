//! What a process reads of others that it becomes connected to, or that start it: names of ports, business cards, descriptions of jobs.

use engine::connected::BusinessCard;
use engine::port::Address;
use engine::spawn::Spawned;

/// The first byte chooses the reader. What parses must be read again as the same.
pub fn run(data: &[u8]) {
    let [choice, data @ ..] = data else { return };
    match choice % 3 {
        0 => {
            if let Some(address) = std::str::from_utf8(data).ok().and_then(Address::parse) {
                let name = address.name();
                assert_eq!(Address::parse(&name).map(|again| again.name()), Some(name));
            }
        }
        1 => {
            if let Some(all) = BusinessCard::parse_all(data) {
                assert!(all.iter().all(|one| one.to_bytes().len() <= BusinessCard::BYTES_MAX));
                assert_eq!(all.iter().flat_map(BusinessCard::to_bytes).collect::<Vec<u8>>(), data);
            }
        }
        _ => {
            if let Some(job) = Spawned::parse(data) {
                assert!(job.size() > 0);
                assert_eq!(job.to_bytes(), data);
            }
        }
    }
}
