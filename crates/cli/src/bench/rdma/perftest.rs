//! What does the device do without an MPI library? `perftest` between two processes of this host, where it is installed.

use super::Port;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time of one measurement.
const LIMIT: Duration = Duration::from_secs(30);
/// A server gets so long before its client comes, and the client tries so often.
const LEAD: Duration = Duration::from_millis(300);
const TRIES: usize = 3;

/// Programs of perftest on one port.
pub struct Perftest {
    /// `-d DEVICE -i PORT`, and where the port wants it its place in the GID table.
    options: Vec<String>,
}

impl Perftest {
    /// Errors: why there is none.
    pub fn over(port: &Port) -> Result<Perftest, String> {
        if !port.has_datagrams {
            return Err("perftest is not run over iWARP, which wants the connection manager".to_owned());
        }
        let (device, number) = port.name.split_once(" port ").ok_or("a port without a number")?;
        let installed = Command::new("ib_send_lat").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        installed.map_err(|_| "perftest is not installed: nothing is set beside".to_owned())?;
        let mut options = ["-F", "-d", device, "-i", number].map(str::to_owned).to_vec();
        options.extend(gid_index(&port.facts).into_iter().flat_map(|index| ["-x".to_owned(), index.to_owned()]));
        Ok(Perftest { options })
    }

    /// Typical time of one way, µs. `kind`: RC or UD.
    pub fn latency_us(&self, kind: &str, bytes: u64, messages: u32) -> Result<f64, String> {
        let words = ["-c".to_owned(), kind.to_owned()];
        self.measure("ib_send_lat", &words, bytes, messages, 4)
    }

    /// Mean bandwidth, MB/s, of sends over so many queue pairs, or with `writes` of remote writes.
    pub fn mb_s(&self, kind: &str, writes: bool, bytes: u64, messages: u32, queue_pairs: u32) -> Result<f64, String> {
        let words = ["-c".to_owned(), kind.to_owned(), "-q".to_owned(), queue_pairs.to_string()];
        let program = if writes { "ib_write_bw" } else { "ib_send_bw" };
        self.measure(program, &words, bytes, messages, 3).map(|mib_s| mib_s * f64::from(1 << 20) / 1e6)
    }

    fn measure(&self, program: &str, words: &[String], bytes: u64, messages: u32, column: usize) -> Result<f64, String> {
        let command = || {
            let mut command = Command::new(program);
            command.args(&self.options).args(words).args(["-s", &bytes.to_string(), "-n", &messages.to_string()]).stdin(Stdio::null());
            command
        };
        let mut server = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| format!("{program}: {error}"))?;
        let mut last = Err(format!("{program}: nothing was measured"));
        for _ in 0..TRIES {
            std::thread::sleep(LEAD);
            last = client(command().arg("localhost"), program).and_then(|text| {
                number(&text, bytes, column).ok_or_else(|| format!("{program}: {}", text.trim().lines().next_back().unwrap_or("it says nothing")))
            });
            // A server serves once.
            if last.is_ok() || server.try_wait().is_ok_and(|ended| ended.is_some()) {
                break;
            }
        }
        let _ = ended(&mut server, Duration::from_secs(1));
        last
    }
}

/// What a client prints, which ends in time.
fn client(command: &mut Command, program: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(failed)?;
    if !ended(&mut child, LIMIT) {
        return Err(format!("{program} did not end within {} s", LIMIT.as_secs()));
    }
    // What it prints fits into a pipe.
    let output = child.wait_with_output().map_err(failed)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a process ends in time; it is ended otherwise.
fn ended(child: &mut Child, limit: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Ok(Some(_)) => return true,
            Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// The number in a column of the row that begins with `bytes`; perftest tells 0 where it has measured nothing.
fn number(text: &str, bytes: u64, column: usize) -> Option<f64> {
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.into_iter().find(|row| row.first().is_some_and(|first| *first == bytes.to_string()) && row.len() > column)?;
    row[column].parse().ok().filter(|&value| value > 0.0)
}

/// Where a port's GID is in the table, where its facts tell.
fn gid_index(facts: &str) -> Option<&str> {
    let (_, rest) = facts.split_once(" at index ")?;
    Some(&rest[..rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_perftest_are_read() {
        let text = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n\
 8       2000          28.10          112.40       33.21              34.02\n";
        assert_eq!(number(text, 8, 4), Some(33.21));
        assert_eq!(number(text, 16, 4), None);
        let text = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 4096       1000             57.43              42.84  \t\t   0.010968\n";
        assert_eq!(number(text, 4096, 3), Some(42.84));
        assert_eq!(number(" 4096  1000  0.00  0.00  0.000000\n", 4096, 3), None);
        assert_eq!(number("Couldn't connect to localhost:18515\n", 8, 4), None);
    }

    #[test]
    fn the_place_of_a_gid_is_found() {
        assert_eq!(gid_index("RoCE v2 on dum0, GID ::ffff:10.99.0.1 at index 12, datagrams of 4096 bytes"), Some("12"));
        assert_eq!(gid_index("InfiniBand, LID 4, GID fe80::1, datagrams of 4096 bytes"), None);
    }
}
