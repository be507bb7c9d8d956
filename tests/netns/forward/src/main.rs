//! A network between test hosts that can be made bad: `forward SEED RAIL:HOST:INTERFACE...`. Frames that come in on one interface
//! leave on another of the same rail, to the host that stands in the last byte of the address they are for.
//!
//! It does what it reads from standard input, and says `ok` or `error: …` to each line:
//!
//! | line | |
//! | --- | --- |
//! | `set [rail=R] [host=H] NAME=VALUE…` | towards these hosts: `loss`, `duplicate`, `reorder`, `corrupt` (0 to 1), `delay_us`, `rate_mb_s` (0: any), `queue_kb`, `cut` (0 or 1) |
//! | `forge COUNT PER_S [PORT]` | sends forged datagrams as well, made of such as have passed; all to that port |
//! | `forged` | how many have been sent so far |
//! | `count` | prints counters of each link |
//!
//! Ends with its input, and prints counters then.

mod forge;
mod frame;
mod impair;
mod leg;

use forge::Forger;
use impair::{Link, Settings};
use leg::{Batch, Leg};
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::Instant;

/// Forged frames between two looks at the real ones.
const FORGED_AT_ONCE: u64 = 32;
/// With forging under way, looks come so often.
const FORGE_EVERY_NS: u64 = 200_000;
const BATCHES_AT_ONCE: usize = 4;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first().map(|(seed, legs)| (seed.parse(), legs)) {
        Some((Ok(seed), legs)) if legs.len() >= 2 => match Switch::open(seed, legs).and_then(|mut switch| switch.run()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("forward: {why}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("forward SEED RAIL:HOST:INTERFACE RAIL:HOST:INTERFACE...");
            ExitCode::from(2)
        }
    }
}

struct Switch {
    legs: Vec<Leg>,
    /// Towards each leg.
    links: Vec<Link>,
    overrun: Vec<u64>,
    refused: u64,
    forger: Forger,
    clock: Instant,
}

impl Switch {
    fn open(seed: u64, words: &[String]) -> Result<Self, String> {
        let legs: Vec<Leg> = words.iter().map(|word| Leg::open(word)).collect::<Result<_, _>>()?;
        let links = (0..legs.len() as u64).map(|i| Link::new(seed.wrapping_mul(1000).wrapping_add(i))).collect();
        let overrun = vec![0; legs.len()];
        Ok(Switch { legs, links, overrun, refused: 0, forger: Forger::new(seed), clock: Instant::now() })
    }

    fn run(&mut self) -> Result<(), String> {
        let mut batch = Batch::new();
        let mut input = Input::default();
        let mut polls: Vec<libc::pollfd> = self.legs.iter().map(|leg| leg.fd()).chain([0]).map(wait_for).collect();
        say("ready");
        loop {
            let due_ns = self.links.iter().filter_map(Link::next_ns).min();
            let now_ns = self.now_ns();
            let forge_ns = self.forger.busy().then_some(now_ns + FORGE_EVERY_NS);
            let until_ns = due_ns.into_iter().chain(forge_ns).min();
            poll(&mut polls, until_ns.map(|at| at.saturating_sub(now_ns))).map_err(|error| error.to_string())?;
            let ready: Vec<usize> = (0..self.legs.len()).filter(|leg| polls[*leg].revents != 0).collect();
            for from in ready {
                for _ in 0..BATCHES_AT_ONCE {
                    let count = self.legs[from].receive(&mut batch).map_err(|error| error.to_string())?;
                    self.pass_on(from, &mut batch, count);
                    if count == 0 {
                        break;
                    }
                }
            }
            self.send_due();
            self.send_forged();
            if polls.last().is_some_and(|input| input.revents != 0) {
                let open = input.read();
                while let Some(line) = input.line() {
                    self.obey(&line);
                }
                if !open {
                    self.count();
                    return Ok(());
                }
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn pass_on(&mut self, from: usize, batch: &mut Batch, count: usize) {
        let now_ns = self.now_ns();
        let Switch { legs, links, forger, refused, .. } = self;
        let rail = legs[from].rail;
        // Frames that leave at once are sent from where they lie; a broadcast meets one link after the other.
        for (to, leg) in legs.iter().enumerate().filter(|(to, leg)| *to != from && leg.rail == rail) {
            let mut at_once: Vec<&[u8]> = Vec::with_capacity(count);
            for frame in batch.frames(count) {
                if frame.len() < frame::ETHERNET_BYTES || frame[0] & 1 == 0 && frame[5] != leg.host {
                    continue;
                }
                forger.see((rail, leg.host), frame);
                if links[to].admit(now_ns, frame) {
                    at_once.push(frame);
                }
            }
            *refused += (at_once.len() - leg.send(&at_once)) as u64;
        }
    }

    fn send_due(&mut self) {
        let now_ns = self.now_ns();
        for (leg, link) in self.legs.iter().zip(&mut self.links) {
            let frames: Vec<Vec<u8>> = std::iter::from_fn(|| link.due(now_ns)).collect();
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            self.refused += (frames.len() - leg.send(&frames)) as u64;
        }
    }

    /// Forged frames meet with no accidents.
    fn send_forged(&mut self) {
        for _ in 0..self.forger.due(self.now_ns(), FORGED_AT_ONCE) {
            let Some((place, frame)) = self.forger.forge() else { continue };
            if let Some(leg) = self.legs.iter().find(|leg| (leg.rail, leg.host) == place) {
                self.forger.sent += leg.send(&[&frame]) as u64;
            }
        }
    }

    fn obey(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let answer = match words.next() {
            Some("set") => self.set(words),
            Some("forge") => {
                let mut number = || words.next()?.parse::<u64>().ok();
                match (number(), number(), number().map(u16::try_from)) {
                    (Some(count), Some(per_s), None) => {
                        self.forger.begin(self.now_ns(), count, per_s, None);
                        Ok(())
                    }
                    (Some(count), Some(per_s), Some(Ok(port))) => {
                        self.forger.begin(self.now_ns(), count, per_s, Some(port));
                        Ok(())
                    }
                    _ => Err("forge COUNT PER_S [PORT]".to_string()),
                }
            }
            Some("forged") => {
                say(&format!("forged={}", self.forger.sent));
                Ok(())
            }
            Some("count") => {
                self.count();
                Ok(())
            }
            _ => Err(format!("unknown: {line}")),
        };
        say(&answer.map_or_else(|why| format!("error: {why}"), |()| "ok".to_string()));
    }

    fn set<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let (mut rail, mut host) = (None, None);
        let mut changes: Vec<&str> = Vec::new();
        for word in words {
            let number = |text: &str| text.parse::<u8>().map(Some).map_err(|_| format!("{word}: no number"));
            match word.split_once('=') {
                Some(("rail", text)) => rail = number(text)?,
                Some(("host", text)) => host = number(text)?,
                _ => changes.push(word),
            }
        }
        let mut trial = Settings::default();
        changes.iter().try_for_each(|change| trial.set(change))?;
        let chosen = |leg: &Leg| rail.is_none_or(|rail| rail == leg.rail) && host.is_none_or(|host| host == leg.host);
        for (_, link) in self.legs.iter().zip(&mut self.links).filter(|(leg, _)| chosen(leg)) {
            changes.iter().try_for_each(|change| link.settings.set(change))?;
        }
        Ok(())
    }

    fn count(&mut self) {
        for ((leg, link), overrun) in self.legs.iter().zip(&self.links).zip(&mut self.overrun) {
            // The kernel's count starts again with each look.
            *overrun += leg.overrun();
            say(&format!("rail={} to={} {} overrun={overrun}", leg.rail, leg.host, link.counters));
        }
        say(&format!("refused={} forged={}", self.refused, self.forger.sent));
    }
}

fn say(line: &str) {
    // Who listens may have gone.
    let _ = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
}

fn wait_for(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

fn poll(polls: &mut [libc::pollfd], limit_ns: Option<u64>) -> io::Result<()> {
    let limit = limit_ns.map(|ns| libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the slice is as long as it says, and the limit outlives the call.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as u64, limit, std::ptr::null()) };
    match io::Error::last_os_error() {
        error if ready < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Lines of standard input.
#[derive(Default)]
struct Input(Vec<u8>);

impl Input {
    /// Reads what is there. Whether more may come.
    fn read(&mut self) -> bool {
        let mut some = [0; 4096];
        let got = io::stdin().lock().read(&mut some).unwrap_or(0);
        self.0.extend_from_slice(&some[..got]);
        got > 0
    }

    fn line(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.0.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).trim().to_string())
    }
}
