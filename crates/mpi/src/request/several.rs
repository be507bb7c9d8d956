//! Completing several requests: all, one or some of them.

use super::look::*;
use super::next;
use super::object::*;
use super::wait::{try_for, wait_for};
use crate::consts::*;
use crate::error::Result;
use crate::handle::{self, Status};
use crate::world::{self, World, fault};
use engine::{Cell, Doing, Engine, Guard};

/// Whether a request takes part in waiting for one of several: not if it is null, or persistent and inactive.
fn active(request: handle::Request) -> bool {
    match request {
        MPI_REQUEST_NULL => false,
        DONE | DONE_PROC_NULL => true,
        r if r.0 & OBJECT != 0 => object_here(r).map_or(true, |o| !matches!(*o.state.lock(), State::Inactive)),
        _ => true,
    }
}

/// `MPI_Waitall`: each request is given to `well` if its operation ended well and has nothing more to say, else to `each`.
#[inline(always)]
pub fn wait_all(
    function: &'static str,
    requests: &mut [handle::Request],
    mut well: impl FnMut(usize, Status),
    mut each: impl FnMut(usize, Completion),
) -> Result<()> {
    let world = world::get()?;
    let (mut next, mut failed) = (0, None);
    let several = world.engines.several();
    while next < requests.len() {
        let mut later: Vec<(usize, Found)> = Vec::new();
        let (each, well) = (&mut each, &mut well);
        let cell = cell_of(world, requests[next]);
        wait_for(world, cell, Doing::call(function), |e| {
            while next < requests.len() {
                if several && vci_of(requests[next]).is_some_and(|vci| vci != e.vci()) {
                    // Those that are under way elsewhere go on meanwhile.
                    return Some(());
                }
                if let Some(received) = look_quickly(e, &mut requests[next]) {
                    well(next, received.into());
                    next += 1;
                    continue;
                }
                match look(e, &mut requests[next], true) {
                    Ok(Some(Found::Completion(completion))) => each(next, completion),
                    Ok(Some(found)) => later.push((next, found)),
                    Ok(None) => return (!later.is_empty()).then_some(()),
                    Err(error) => {
                        failed = Some(error);
                        return Some(());
                    }
                }
                next += 1;
            }
            Some(())
        })?;
        for (at, found) in later {
            each(at, settle(found, true));
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// The engines that several requests go through, entered.
struct Held<'a> {
    home: &'a mut Engine,
    /// All others, where requests go through several.
    others: Vec<Guard<'static, Engine>>,
}

impl Held<'_> {
    fn of(&mut self, request: handle::Request) -> &mut Engine {
        if self.others.is_empty() {
            return self.home;
        }
        let vci = vci_of(request).unwrap_or(0);
        self.others.iter_mut().map(|guard| &mut **guard).find(|engine| engine.vci() == vci).unwrap_or(self.home)
    }

    fn look(&mut self, request: &mut handle::Request, consume: bool) -> Result<Option<Found>> {
        look(self.of(*request), request, consume)
    }
}

/// Which engine to enter for all of `requests`, and whether the others have to be entered, too. That is done in the order of their numbers, so that
/// threads that do it at once do not wait for each other.
fn cells_of(world: &'static World, requests: &[handle::Request]) -> (&'static Cell<Engine>, bool) {
    if !world.engines.several() {
        return (world.engine(), false);
    }
    let mut vcis = requests.iter().filter_map(|request| vci_of(*request));
    let first = vcis.next().unwrap_or(0);
    if vcis.all(|vci| vci == first) { (world.engines.of(first), false) } else { (world.engine(), true) }
}

fn hold<'a>(world: &'static World, home: &'a mut Engine, all: bool) -> Held<'a> {
    Held { home, others: if all { world.engines.all().skip(1).map(Cell::lock).collect() } else { Vec::new() } }
}

/// `MPI_Testall`; with `consume` off, `MPI_Request_get_status_all`. `None` when not all are complete.
pub fn test_all(requests: &mut [handle::Request], consume: bool) -> Result<Option<Vec<Completion>>> {
    let world = world::get()?;
    let (cell, several) = cells_of(world, requests);
    let all = try_for(cell, |e| {
        let mut held = hold(world, e, several);
        for request in requests.iter_mut() {
            if held.look(&mut request.clone(), false)?.is_none() {
                return Ok(None);
            }
        }
        requests.iter_mut().map(|r| Ok(held.look(r, consume)?.expect("just seen complete"))).collect::<Result<Vec<Found>>>().map(Some)
    })?;
    Ok(all.map(|founds| founds.into_iter().map(|f| settle(f, consume)).collect()))
}

/// One of several requests.
pub enum Any {
    /// There is no active request.
    NoneActive,
    One(usize, Completion),
}

/// Completions ago that a request completed, if it has; outside `None` where it takes no part.
#[inline(always)]
fn active_age(held: &mut Held, request: &mut handle::Request) -> Result<Option<Option<u32>>> {
    if *request == MPI_REQUEST_NULL {
        return Ok(None);
    }
    if let Some(age) = plain_age(held.of(*request), *request) {
        return Ok(Some(age));
    }
    if active(*request) { age(held.of(*request), request).map(Some) } else { Ok(None) }
}

/// Completions ago that a request completed, if it has. What is no request of the engine counts as the oldest.
fn age(e: &mut Engine, request: &mut handle::Request) -> Result<Option<u32>> {
    let id = match plain(e, *request) {
        Some(id) => Some(id),
        None if request.0 & OBJECT != 0 => object_here(*request).ok().and_then(|o| match *o.state.lock() {
            State::Plain(id) => Some(id),
            _ => None,
        }),
        None => None,
    };
    match id {
        Some(id) => Ok(e.peek(id).map(|outcome| (e.completions() as u32).wrapping_sub(outcome.order))),
        None => Ok(look(e, &mut request.clone(), false)?.map(|_| u32::MAX)),
    }
}

/// As [`next::oldest`], for a list of any requests.
fn oldest_of_all(held: &mut Held, requests: &mut [handle::Request]) -> Result<(bool, Option<usize>)> {
    let (mut any_active, mut oldest) = (false, None);
    for (at, request) in requests.iter_mut().enumerate() {
        let Some(age) = active_age(held, request)? else { continue };
        any_active = true;
        if let Some(age) = age
            && oldest.is_none_or(|(_, best)| age > best)
        {
            oldest = Some((at, age));
        }
    }
    Ok((any_active, oldest.map(|(at, _)| at)))
}

/// The complete request that completed first: programs count on messages of one sender coming in order (MPI-5.0 §3.5).
fn find_any(held: &mut Held, requests: &mut [handle::Request], consume: bool) -> Result<Option<Option<(usize, Found)>>> {
    let quick = if held.others.is_empty() { next::oldest(held.home, requests) } else { None };
    let (any_active, oldest) = match quick {
        Some(found) => found,
        None => oldest_of_all(held, requests)?,
    };
    let Some(at) = oldest else { return Ok(if any_active { None } else { Some(None) }) };
    Ok(held.look(&mut requests[at], consume)?.map(|found| Some((at, found))))
}

fn any_of(found: Option<(usize, Found)>, consume: bool) -> Any {
    found.map_or(Any::NoneActive, |(at, f)| Any::One(at, settle(f, consume)))
}

/// Which looks at several requests may find something new: the first, and those after further completions. In a process of several engines, all, since a
/// request may be complete before the others have told of it.
struct News {
    world: &'static World,
    completions: Option<u64>,
}

impl News {
    fn new(world: &'static World) -> News {
        News { world, completions: None }
    }

    #[inline(always)]
    fn any(&mut self, engine: &Engine) -> bool {
        let now = Some(engine.completions());
        std::mem::replace(&mut self.completions, now) != now || self.world.engines.several()
    }
}

/// `MPI_Waitany`.
pub fn wait_any(function: &'static str, requests: &mut [handle::Request]) -> Result<Any> {
    let world = world::get()?;
    let (cell, several) = cells_of(world, requests);
    let (mut failed, mut news) = (None, News::new(world));
    let found = wait_for(world, cell, Doing::call(function), |e| {
        if !news.any(e) {
            return None;
        }
        match find_any(&mut hold(world, e, several), requests, true) {
            Ok(found) => found,
            Err(error) => {
                failed = Some(error);
                Some(None)
            }
        }
    })?;
    failed.map_or(Ok(any_of(found, true)), Err)
}

/// `MPI_Testany`; with `consume` off, `MPI_Request_get_status_any`.
pub fn test_any(requests: &mut [handle::Request], consume: bool) -> Result<Option<Any>> {
    let world = world::get()?;
    let (cell, several) = cells_of(world, requests);
    let found = try_for(cell, |e| find_any(&mut hold(world, e, several), requests, consume))?;
    Ok(found.map(|f| any_of(f, consume)))
}

/// Several requests that are complete, each with its place among those asked for, in the order in which they completed.
pub type Complete = Vec<(usize, Completion)>;

/// The complete requests, and which of them are left to [`settle`], by their place in the list.
struct SomeFound {
    list: Complete,
    unsettled: Vec<(usize, Found)>,
}

/// The quick way through a list of requests of one engine of which none is complete: whether all are plain and under way, or null, and one is not null.
fn all_under_way(engine: &Engine, requests: &[handle::Request]) -> bool {
    let mut any_active = false;
    for request in requests {
        if under_way(engine, *request) {
            any_active = true;
        } else if *request != MPI_REQUEST_NULL {
            return false;
        }
    }
    any_active
}

/// The complete requests in the order in which they completed; `Some(None)` where none is active.
fn find_some(held: &mut Held, requests: &mut [handle::Request], consume: bool) -> Result<Option<Option<SomeFound>>> {
    if held.others.is_empty() && all_under_way(held.home, requests) {
        return Ok(None);
    }
    let (mut any_active, mut complete, left) = (false, Vec::new(), requests.len());
    for (at, request) in requests.iter_mut().enumerate() {
        let Some(age) = active_age(held, request)? else { continue };
        any_active = true;
        if let Some(age) = age {
            if complete.is_empty() {
                complete.reserve(left - at);
            }
            complete.push((at, age));
        }
    }
    if complete.is_empty() {
        return Ok(if any_active { None } else { Some(None) });
    }
    complete.sort_by_key(|(_, age)| std::cmp::Reverse(*age));
    let mut founds = SomeFound { list: Vec::with_capacity(complete.len()), unsettled: Vec::new() };
    for (at, _) in complete {
        let request = &mut requests[at];
        if consume && let Some(received) = look_quickly(held.of(*request), request) {
            founds.list.push((at, Completion::of(received.into())));
            continue;
        }
        match held.look(request, consume)? {
            Some(Found::Completion(completion)) => founds.list.push((at, completion)),
            Some(found) => {
                founds.unsettled.push((founds.list.len(), found));
                founds.list.push((at, Completion::of(Status::EMPTY)));
            }
            None => {}
        }
    }
    Ok(if founds.list.is_empty() { None } else { Some(Some(founds)) })
}

fn some_of(founds: Option<SomeFound>, consume: bool) -> Option<Complete> {
    let mut founds = founds?;
    for (at, found) in founds.unsettled {
        founds.list[at].1 = settle(found, consume);
    }
    Some(founds.list)
}

/// Takes in all that has come, for a call that gives back as many requests as are complete.
fn take_in(e: &mut Engine, requests: usize) -> Result<()> {
    /// A turn of progress deals with so many messages at least, where they are there.
    const TURN: usize = 64;
    for _ in 0..=requests / TURN {
        if !e.progress().map_err(fault)? {
            break;
        }
    }
    Ok(())
}

/// `MPI_Waitsome`. `None` when there is no active request.
pub fn wait_some(function: &'static str, requests: &mut [handle::Request]) -> Result<Option<Complete>> {
    let world = world::get()?;
    let (cell, several) = cells_of(world, requests);
    let (mut failed, mut news) = (None, News::new(world));
    let founds = wait_for(world, cell, Doing::call(function), |e| {
        if !news.any(e) {
            return None;
        }
        match take_in(e, requests.len()).and_then(|()| find_some(&mut hold(world, e, several), requests, true)) {
            Ok(found) => found,
            Err(error) => {
                failed = Some(error);
                Some(None)
            }
        }
    })?;
    failed.map_or(Ok(some_of(founds, true)), Err)
}

/// `MPI_Testsome`; with `consume` off, `MPI_Request_get_status_some`. The outer `None`: none is complete.
pub fn test_some(requests: &mut [handle::Request], consume: bool) -> Result<Option<Option<Complete>>> {
    let world = world::get()?;
    let (cell, several) = cells_of(world, requests);
    let founds = try_for(cell, |e| find_some(&mut hold(world, e, several), requests, consume))?;
    Ok(founds.map(|f| some_of(f, consume)))
}
