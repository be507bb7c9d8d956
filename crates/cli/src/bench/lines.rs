//! What do the programs print? One JSON object a line, told apart by `bench`.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "bench", rename_all = "lowercase")]
pub enum Line {
    /// The length of one iteration of computing, to be used by all later runs.
    Work {
        work_ns: f64,
    },
    Overlap(Overlap),
    Exchange(Exchange),
    Crossing(Crossing),
    Pattern(Pattern),
    Allconn(Allconn),
    Latency(Latency),
    Goodput(Goodput),
    Pingpong(Operation),
    Sendrecv(Operation),
    Allreduce(Operation),
}

/// What all ranks counted meanwhile; `None` where the library has no such variable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    pub rtr_sent: Option<f64>,
    pub rtr_used: Option<f64>,
    pub rtr_crossed: Option<f64>,
    pub rtr_mispredicted: Option<f64>,
    /// Of announcements that were not used.
    pub rtr_wasted_bytes: Option<f64>,
    /// In messages.
    pub bytes_received: Option<f64>,
}

/// A transfer beside which one side computes; times in µs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overlap {
    /// The side that computes: `receiver` or `sender`.
    pub side: String,
    /// The side that calls first.
    pub first: String,
    pub bytes: u64,
    /// Without computing.
    pub comm_us: f64,
    /// Until the whole message has arrived, without computing.
    pub arrival_us: f64,
    /// One core's copy of the message by one system call; 0 where that is not allowed.
    pub one_core_copy_us: f64,
    pub points: Vec<OverlapPoint>,
    #[serde(flatten)]
    pub counters: Counters,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OverlapPoint {
    /// The computing alone.
    pub comp_us: f64,
    /// Both.
    pub total_us: f64,
    pub arrival_us: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// 1 or 2 (paper 002, Fig. 15).
    pub model: u32,
    pub bytes: u64,
    /// Percent.
    pub imbalance: f64,
    pub points: Vec<ExchangePoint>,
    #[serde(flatten)]
    pub counters: Counters,
}

/// Time of an iteration, µs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExchangePoint {
    /// Nominal, produce and consume together.
    pub comp_us: f64,
    /// Lower quartile of the batches.
    pub quartile_us: f64,
    pub best_us: f64,
    /// Packing, of `quartile_us`.
    #[serde(default)]
    pub pack_us: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crossing {
    pub bytes: u64,
    pub messages: f64,
    pub median_us: f64,
    pub best_us: f64,
    #[serde(flatten)]
    pub counters: Counters,
}

/// One run of a pattern; times in µs, means over the ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pattern {
    pub name: String,
    pub ranks: usize,
    /// 0 is the warm-up.
    pub repeat: u32,
    /// Percent.
    pub imbalance: f64,
    pub shorten: f64,
    pub total_us: f64,
    /// Inside `MPI_Wait` and `MPI_Waitall`.
    pub wait_us: f64,
    /// Inside all MPI calls.
    pub mpi_us: f64,
    #[serde(flatten)]
    pub counters: Counters,
}

/// A job in which every rank has sent to every other; bytes and times are means over the ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Allconn {
    pub ranks: u32,
    /// Inside `MPI_Init`.
    pub init_us: f64,
    /// Private memory of a rank before the first message of the ring; 0 where the kernel does not tell.
    pub private_before_bytes: f64,
    pub points: Vec<AllconnPoint>,
    /// The whole ring a second time.
    pub again_us: f64,
    /// The library's own memory that is registered with devices, bytes, and its queue pairs; 0 where the library does not tell.
    #[serde(default)]
    pub registered_bytes: f64,
    #[serde(default)]
    pub queue_pairs: f64,
    /// Files and sockets that a rank holds open at the end.
    pub descriptors: f64,
}

/// After so many peers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AllconnPoint {
    pub peers: u32,
    /// In the ring so far.
    pub elapsed_us: f64,
    pub private_bytes: f64,
    /// Of the rank that has most.
    pub private_bytes_max: f64,
}

/// Half round trips of a short message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub bytes: u64,
    pub messages: u64,
    pub mean_us: f64,
    pub median_us: f64,
    pub p99_us: f64,
    pub longest_us: f64,
}

/// A stream of messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goodput {
    pub bytes: u64,
    pub window: u32,
    pub seconds: f64,
    pub mb_s: f64,
}

/// One of the Pallas MPI Benchmarks: µs as these tell it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    pub ranks: u32,
    pub bytes: u64,
    pub median_us: f64,
    pub best_us: f64,
}

impl Counters {
    /// Share of the sent RTRs that their sender used, 0 to 1; `None` where none were sent or none are counted.
    pub fn usage(&self) -> Option<f64> {
        share(self.rtr_used, self.rtr_sent)
    }

    /// Share of the sent RTRs that crossed an RTS.
    pub fn crossed(&self) -> Option<f64> {
        share(self.rtr_crossed, self.rtr_sent)
    }

    /// Bytes of announcements in vain over those of all messages (paper 002, Fig. 19b).
    pub fn extra_volume(&self) -> Option<f64> {
        share(self.rtr_wasted_bytes, self.bytes_received)
    }

    pub fn add(&mut self, other: &Self) {
        let sum = |left: &mut Option<f64>, right: Option<f64>| {
            if let Some(right) = right {
                *left = Some(left.unwrap_or(0.0) + right);
            }
        };
        sum(&mut self.rtr_sent, other.rtr_sent);
        sum(&mut self.rtr_used, other.rtr_used);
        sum(&mut self.rtr_crossed, other.rtr_crossed);
        sum(&mut self.rtr_mispredicted, other.rtr_mispredicted);
        sum(&mut self.rtr_wasted_bytes, other.rtr_wasted_bytes);
        sum(&mut self.bytes_received, other.bytes_received);
    }
}

/// The lines of a program's output that are ours; others are whatever the library had to say.
///
/// Errors: a line in braces that is none of ours.
pub fn parse(output: &str) -> Result<Vec<Line>, String> {
    let ours = output.lines().filter(|line| line.starts_with('{'));
    ours.map(|line| serde_json::from_str(line).map_err(|error| format!("{error} in {line:?}"))).collect()
}

fn share(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    part.zip(whole).filter(|&(_, whole)| whole > 0.0).map(|(part, whole)| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_programs_are_read_and_others_passed_over() {
        let text = "warning: something\n\
            {\"bench\": \"work\", \"work_ns\": 1.25}\n\
            {\"bench\": \"exchange\", \"model\": 2, \"bytes\": 8, \"imbalance\": 50, \"points\": [{\"comp_us\": 1.5, \
             \"iterations\": 4, \"quartile_us\": 3.0, \"best_us\": 2.5, \"pack_us\": 0.5}], \"rtr_sent\": 8, \"rtr_used\": 6}\n";
        let lines = parse(text).unwrap();
        assert_eq!(lines[0], Line::Work { work_ns: 1.25 });
        let Line::Exchange(exchange) = &lines[1] else { panic!("{lines:?}") };
        assert_eq!(exchange.points, [ExchangePoint { comp_us: 1.5, quartile_us: 3.0, best_us: 2.5, pack_us: 0.5 }]);
        assert_eq!(exchange.counters.usage(), Some(0.75));
        assert_eq!(exchange.counters.crossed(), None);
        assert_eq!(exchange.counters.extra_volume(), None);
    }

    #[test]
    fn a_broken_line_is_an_error_that_shows_it() {
        assert!(parse("{\"bench\": \"work\"").unwrap_err().contains("work"));
        assert!(parse("{\"bench\": \"sleep\"}").unwrap_err().contains("sleep"));
    }

    #[test]
    fn counters_add_up_and_absent_ones_stay_absent() {
        let mut sum = Counters { rtr_sent: Some(1.0), ..Counters::default() };
        sum.add(&Counters { rtr_sent: Some(2.0), rtr_used: Some(3.0), ..Counters::default() });
        assert_eq!((sum.rtr_sent, sum.rtr_used, sum.rtr_wasted_bytes), (Some(3.0), Some(3.0), None));
        let volume = Counters { rtr_wasted_bytes: Some(64.0), bytes_received: Some(1024.0), ..Counters::default() };
        assert_eq!(volume.extra_volume(), Some(0.0625));
        assert_eq!(Counters { rtr_sent: Some(0.0), rtr_used: Some(0.0), ..Counters::default() }.usage(), None);
    }
}
