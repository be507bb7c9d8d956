//! Which processors does each rank get? `--map-by`, `--rank-by` and `--bind-to` of Open MPI and MPICH, as far as one machine goes.
//!
//! Processes are mapped to objects (packages, NUMA nodes, caches, cores, hardware threads; the whole machine for `slot` and `node`), in turn or as many
//! as `ppr` says; those of one object share its cores. Ranks are numbered in that order, or as `--rank-by` says. A binding then is the share, one core,
//! one hardware thread, or the whole object of some kind around it.

use crate::topology::{Cpu, Unit};
use std::collections::BTreeMap;

/// Which processors a rank may use.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Bind {
    /// An equal share of the cores, so that ranks with threads have room.
    #[default]
    Share,
    None,
    /// Exactly one core or hardware thread, or all of a larger object.
    To(Unit),
}

/// How processes are spread over the machine.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Placement {
    /// As it was asked for, for who starts the ranks elsewhere.
    pub asked: Option<String>,
    pub map: Option<Unit>,
    /// Processes of each object.
    pub per_object: Option<u32>,
    /// Cores, or hardware threads, of each process.
    pub elements: Option<u32>,
    pub rank: Option<RankBy>,
    pub bind: Bind,
    /// Hardware threads count as cores do otherwise.
    pub hwthreads: bool,
    /// More ranks than cores are an error.
    pub no_oversubscribe: bool,
    /// More ranks bound to a core than one are an error.
    pub no_overload: bool,
}

/// In which order mapped processes get their ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankBy {
    /// As they were mapped.
    Slot,
    /// Those of one object first, then those of the next.
    Fill,
    /// In turn over objects of this kind.
    Unit(Unit),
}

impl Placement {
    /// Whether anything but the default was asked for.
    pub fn is_explicit(&self) -> bool {
        self.map.is_some() || self.elements.is_some() || matches!(self.bind, Bind::To(_))
    }

    /// `--map-by TEXT`: a kind of objects or `ppr:N:KIND`, and modifiers behind colons. Processors that `pe-list` names are given back.
    ///
    /// Errors: one line.
    pub fn map_by(&mut self, text: &str) -> Result<Option<String>, String> {
        let lower = text.to_ascii_lowercase();
        let mut words = lower.split(':').peekable();
        let mut processors = None;
        self.asked = Some(text.to_owned());
        match words.peek().copied().unwrap_or_default() {
            "ppr" => {
                let (_, number, unit) = (words.next(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let number = number.parse().ok().filter(|number| *number > 0);
                self.per_object = Some(number.ok_or_else(|| format!("{text:?}: expected ppr:N:KIND with a number of ranks of each"))?);
                self.map = Some(Unit::parse(unit).map_err(|known| format!("{text:?}: {unit:?} is none of {known}"))?);
            }
            "seq" | "dist" | "rankfile" => {
                return Err(format!("{text:?}: ranks are not placed one by one: use --bind core, with --cpu-list for the processors that the job may use"));
            }
            list if list.starts_with("pe-list=") => {
                processors = Some(list["pe-list=".len()..].to_owned());
                words.next();
            }
            // Modifiers alone.
            word if word.is_empty() || Placement::is_modifier(word) => {}
            word => {
                self.map = Some(Unit::parse(word).map_err(|known| format!("{text:?}: {word:?} is none of ppr, pe-list, {known}"))?);
                words.next();
            }
        }
        words.filter(|word| !word.is_empty()).try_for_each(|word| self.modifier(word).map_err(|why| format!("{text:?}: {why}")))?;
        Ok(processors)
    }

    fn is_modifier(word: &str) -> bool {
        Placement::default().modifier(word).is_ok()
    }

    fn modifier(&mut self, word: &str) -> Result<(), String> {
        match word.split_once('=') {
            Some(("pe", number)) => {
                let number = number.parse().ok().filter(|number| *number > 0);
                self.elements = Some(number.ok_or_else(|| format!("{word:?}: expected a number of cores of each rank"))?);
            }
            _ => match word {
                "hwtcpus" => self.hwthreads = true,
                "corecpus" => self.hwthreads = false,
                "nooversubscribe" => self.no_oversubscribe = true,
                // On one machine they ask for what happens anyway.
                "oversubscribe" | "span" | "ordered" | "noinherit" | "inherit" => {}
                "nolocal" => return Err("nolocal asks for other machines: name them with --hosts".to_owned()),
                _ => return Err(format!("{word:?} is none of pe=N, hwtcpus, corecpus, span, ordered, oversubscribe, nooversubscribe")),
            },
        }
        Ok(())
    }

    /// `--bind-to TEXT`: none, share or a kind of objects, with their number for MPICH, and modifiers behind colons.
    ///
    /// Errors: one line.
    pub fn bind_to(&mut self, text: &str) -> Result<(), String> {
        let lower = text.to_ascii_lowercase();
        let mut words = lower.split(':');
        let word = words.next().unwrap_or_default();
        self.bind = match word {
            "none" => Bind::None,
            "share" => Bind::Share,
            "user" | "rr" => return Err(format!("{text:?}: ranks are not placed one by one: use --cpu-list with core")),
            _ => Bind::To(Unit::parse(word).map_err(|known| format!("{word:?} is none of none, share, {known}"))?),
        };
        if self.bind == Bind::To(Unit::Machine) {
            self.bind = Bind::None;
        }
        for word in words {
            match (word, word.parse()) {
                // MPICH's: so many of them for each rank.
                (_, Ok(number @ 1..)) if matches!(self.bind, Bind::To(Unit::Core | Unit::Hwthread)) => self.elements = Some(number),
                ("overload-allowed" | "if-supported" | "ignore-unsupported", _) => {}
                ("no-overload", _) => self.no_overload = true,
                _ => return Err(format!("{text:?}: {word:?} is none of overload-allowed, no-overload, if-supported, or a number of cores")),
            }
        }
        if self.bind == Bind::To(Unit::Hwthread) {
            self.hwthreads = true;
        }
        Ok(())
    }

    /// `--rank-by TEXT`.
    ///
    /// Errors: one line.
    pub fn rank_by(&mut self, text: &str) -> Result<(), String> {
        let lower = text.to_ascii_lowercase();
        self.rank = Some(match lower.split(':').next().unwrap_or_default() {
            "slot" | "node" | "span" => RankBy::Slot,
            "fill" => RankBy::Fill,
            word => RankBy::Unit(Unit::parse(word).map_err(|known| format!("{text:?}: {word:?} is none of span, fill, {known}"))?),
        });
        Ok(())
    }

    /// Number of ranks that `ppr` asks for on a machine with these processors.
    pub fn ranks(&self, cpus: &[Cpu]) -> Option<u32> {
        self.per_object.map(|each| each.saturating_mul(objects(cpus, self.map.unwrap_or(Unit::Machine)).len() as u32))
    }

    /// The processors of each of `ranks` ranks; `None` where they are not bound.
    ///
    /// Errors: one line; what was asked for does not fit.
    pub fn place(&self, cpus: &[Cpu], ranks: u32) -> Result<Option<Vec<Vec<usize>>>, String> {
        let element = if self.hwthreads || self.map == Some(Unit::Hwthread) { Unit::Hwthread } else { Unit::Core };
        let elements = objects(cpus, element);
        let what = if element == Unit::Core { "cores" } else { "hardware threads" };
        if self.no_oversubscribe && ranks as usize > elements.len() {
            return Err(format!("{ranks} ranks are more than the {} {what} of this machine, and --nooversubscribe was given", elements.len()));
        }
        if self.bind == Bind::None && self.per_object.is_none() || elements.is_empty() {
            return Ok(None);
        }
        // The elements of each object; with several for each process, objects that are elements themselves are no limit.
        let unit = match self.map.unwrap_or(Unit::Machine) {
            Unit::Core | Unit::Hwthread if self.elements.is_some() => Unit::Machine,
            unit => unit,
        };
        let groups = objects(cpus, unit);
        let within = |group: &Vec<Cpu>| elements.iter().filter(|element| group.contains(&element[0])).cloned().collect::<Vec<_>>();
        let groups: Vec<Vec<Vec<Cpu>>> = groups.iter().map(within).collect();
        let Some(mut mapped) = self.map_to(&groups, ranks, what)? else { return Ok(None) };
        if self.bind == Bind::None {
            return Ok(None);
        }
        let around = |place: &[Cpu], unit: Unit| objects(cpus, unit).into_iter().find(|object| object.contains(&place[0])).unwrap_or_default();
        match self.rank {
            None | Some(RankBy::Slot) => {}
            Some(RankBy::Fill) => mapped.sort_by_key(|(object, _)| *object),
            Some(RankBy::Unit(unit)) => {
                // The n-th of each object comes before all that are the (n + 1)-th of theirs.
                let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
                let mut keyed: Vec<_> = mapped
                    .into_iter()
                    .map(|(object, place)| {
                        let key = place[0].key(unit);
                        let turn = seen.entry(key).or_default();
                        *turn += 1;
                        (*turn, key, (object, place))
                    })
                    .collect();
                keyed.sort_by_key(|(turn, key, _)| (*turn, *key));
                mapped = keyed.into_iter().map(|(_, _, place)| place).collect();
            }
        }
        let bound = mapped.into_iter().map(|(_, place)| match self.bind {
            Bind::To(unit) if self.elements.is_none() => around(&place, unit),
            _ => place,
        });
        Ok(Some(bound.map(|place| place.iter().map(|cpu| cpu.number).collect()).collect()))
    }

    /// Object and processors of each process, in the order of mapping; `None` where there are more processes than elements, so that nobody is bound.
    #[allow(clippy::type_complexity)]
    fn map_to(&self, groups: &[Vec<Vec<Cpu>>], ranks: u32, what: &str) -> Result<Option<Vec<(usize, Vec<Cpu>)>>, String> {
        let each = self.elements.map(|each| each as usize);
        let mut members = vec![0; groups.len()];
        let mut order = Vec::new();
        for process in 0..ranks as usize {
            let fits = |object: usize, already: usize| match (self.per_object, each) {
                (Some(most), _) if already >= most as usize => false,
                (_, Some(each)) => (already + 1) * each <= groups[object].len(),
                _ => true,
            };
            let mut turn = (0..groups.len()).map(|step| if self.per_object.is_some() { step } else { (process + step) % groups.len() });
            let Some(object) = turn.find(|object| fits(*object, members[*object])) else {
                let asked = self.asked.as_deref().unwrap_or("--bind-to");
                let room: usize = groups.iter().map(Vec::len).sum();
                return Err(format!("{asked}: {ranks} ranks do not fit: there are {} objects with {room} {what} in all", groups.len()));
            };
            order.push((object, members[object]));
            members[object] += 1;
        }
        let shared = matches!(self.bind, Bind::To(Unit::Cache(_) | Unit::Numa | Unit::Package));
        let overloaded = (0..groups.len()).any(|object| members[object] > groups[object].len());
        if overloaded && each.is_none() && !shared {
            return if self.no_overload { Err(format!("{ranks} ranks are more than the {what} that they would be bound to")) } else { Ok(None) };
        }
        let place = |(object, number): (usize, usize)| {
            let (of, count) = (&groups[object], members[object]);
            let range = match each {
                Some(each) => number * each..(number + 1) * each,
                None if count > of.len() => number % of.len()..number % of.len() + 1,
                None if self.bind == Bind::Share => number * of.len() / count..(number + 1) * of.len() / count,
                None => number * of.len() / count..number * of.len() / count + 1,
            };
            (object, of[range].concat())
        };
        Ok(Some(order.into_iter().map(place).collect()))
    }
}

/// The objects of a kind, each with its processors, in the machine's order.
fn objects(cpus: &[Cpu], unit: Unit) -> Vec<Vec<Cpu>> {
    let mut all: Vec<(usize, Vec<Cpu>)> = Vec::new();
    for cpu in cpus {
        let key = cpu.key(unit);
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, object)) => object.push(*cpu),
            None => all.push((key, vec![*cpu])),
        }
    }
    all.into_iter().map(|(_, object)| object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two packages of two cores of two threads, numbered as Linux usually does: core c has processors c and c + 4.
    fn machine() -> Vec<Cpu> {
        let cpu = |core: usize, thread: usize| Cpu { number: core + 4 * thread, core, caches: [core, core, core / 2 * 2], numa: core / 2, package: core / 2 };
        (0..4).flat_map(|core| [cpu(core, 0), cpu(core, 1)]).collect()
    }

    fn of(map: &str, rank: &str, bind: &str) -> Result<Placement, String> {
        let mut placement = Placement::default();
        if !map.is_empty() {
            placement.map_by(map)?;
        }
        if !rank.is_empty() {
            placement.rank_by(rank)?;
        }
        if !bind.is_empty() {
            placement.bind_to(bind)?;
        }
        Ok(placement)
    }

    /// Such as `0,4 1,5`; `-` where ranks are not bound.
    fn placed(map: &str, rank: &str, bind: &str, ranks: u32) -> String {
        let placed = of(map, rank, bind).and_then(|placement| placement.place(&machine(), ranks));
        let words = |cpus: Vec<usize>| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        match placed {
            Ok(Some(ranks)) => ranks.into_iter().map(words).collect::<Vec<_>>().join(" "),
            Ok(None) => "-".to_owned(),
            Err(error) => error,
        }
    }

    #[test]
    fn ranks_are_mapped_numbered_and_bound() {
        for (map, rank, bind, ranks, expected) in [
            ("", "", "", 2, "0,4,1,5 2,6,3,7"),
            ("", "", "core", 2, "0,4 2,6"),
            ("", "", "core", 4, "0,4 1,5 2,6 3,7"),
            ("", "", "", 5, "-"),
            ("slot", "", "none", 2, "-"),
            ("core", "", "", 2, "0,4 1,5"),
            ("core", "", "core", 3, "0,4 1,5 2,6"),
            ("socket", "", "core", 3, "0,4 2,6 1,5"),
            ("package", "", "", 2, "0,4,1,5 2,6,3,7"),
            ("package", "fill", "core", 4, "0,4 1,5 2,6 3,7"),
            ("slot", "package", "core", 4, "0,4 2,6 1,5 3,7"),
            ("node", "", "package", 3, "0,4,1,5 0,4,1,5 2,6,3,7"),
            ("numa", "", "numa", 5, "0,4,1,5 2,6,3,7 0,4,1,5 2,6,3,7 0,4,1,5"),
            ("hwthread", "", "", 3, "0 4 1"),
            ("", "", "hwthread", 8, "0 4 1 5 2 6 3 7"),
            ("slot:PE=2", "", "", 2, "0,4,1,5 2,6,3,7"),
            ("core:pe=2:hwtcpus", "", "core", 2, "0,4 1,5"),
            ("socket:PE=2", "", "", 2, "0,4,1,5 2,6,3,7"),
            ("", "", "core:2", 2, "0,4,1,5 2,6,3,7"),
            ("ppr:1:socket", "", "core", 2, "0,4 2,6"),
            ("ppr:2:l3cache", "", "core", 4, "0,4 1,5 2,6 3,7"),
            (":OVERSUBSCRIBE", "", "core", 5, "-"),
            ("l2cache", "", "", 2, "0,4 1,5"),
        ] {
            assert_eq!(placed(map, rank, bind, ranks), expected, "{map} {rank} {bind} {ranks}");
        }
        assert_eq!(of("ppr:2:socket", "", "").unwrap().ranks(&machine()), Some(4));
        assert_eq!(of("ppr:3:node", "", "").unwrap().ranks(&machine()), Some(3));
        assert_eq!(Placement::default().map_by("pe-list=0,2:ordered"), Ok(Some("0,2".to_owned())));
    }

    #[test]
    fn what_does_not_fit_or_is_not_known_is_refused() {
        for (map, rank, bind, ranks, words) in [
            ("slot:PE=3", "", "", 2, "slot:PE=3: 2 ranks do not fit: there are 1 objects with 4 cores in all"),
            ("socket:PE=2", "", "", 3, "3 ranks do not fit: there are 2 objects"),
            ("ppr:1:socket", "", "", 3, "3 ranks do not fit"),
            ("slot:NOOVERSUBSCRIBE", "", "", 5, "5 ranks are more than the 4 cores"),
            ("", "", "core:no-overload", 5, "5 ranks are more than the cores"),
            ("rack", "", "", 1, "\"rack\" is none of ppr, pe-list, slot"),
            ("ppr:x:node", "", "", 1, "expected ppr:N:KIND"),
            ("slot:PE=0", "", "", 1, "expected a number of cores"),
            ("slot:sideways", "", "", 1, "\"sideways\" is none of pe=N"),
            ("slot:nolocal", "", "", 1, "--hosts"),
            ("seq", "", "", 1, "one by one"),
            ("", "colour", "", 1, "\"colour\" is none of span, fill"),
            ("", "", "chair", 1, "\"chair\" is none of none, share"),
            ("", "", "core:limit=2", 1, "\"limit=2\" is none of"),
            ("", "", "user:0,1", 1, "--cpu-list"),
        ] {
            let said = placed(map, rank, bind, ranks);
            assert!(said.contains(words) && !said.contains('\n'), "{map} {rank} {bind} {ranks}: {said}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z0-9:=,]{0,20}", ranks in 1u32..20) {
            for (map, rank, bind) in [(&text[..], "", ""), ("", &text[..], ""), ("", "", &text[..])] {
                if let Ok(placement) = of(map, rank, bind) {
                    let _ = placement.place(&machine(), ranks);
                }
            }
        }

        /// Whoever is bound has a processor, and whole shares do not overlap.
        #[test]
        fn shares_do_not_overlap(map in "(slot|core|socket|numa|hwthread|l3cache)", rank in "(slot|fill|core|socket)", ranks in 1u32..9) {
            if let Some(places) = of(&map, &rank, "").unwrap().place(&machine(), ranks).unwrap() {
                let mut all = places.concat();
                let count = all.len();
                all.sort_unstable();
                all.dedup();
                prop_assert!(places.len() == ranks as usize && places.iter().all(|place| !place.is_empty()));
                prop_assert_eq!(all.len(), count);
            }
        }
    }
}
