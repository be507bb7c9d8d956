//! Nonblocking collectives through slots ([`engine::slots`]): a rank brings its part when it starts one, and whoever
//! makes progress looks at flags until the parts that this rank needs are there, and takes them.
//!
//! The slots are not those of blocking collectives ([`crate::turn`]), since nonblocking ones have numbers of their own. A
//! communicator gets them with one of its first nonblocking collectives; those started before that one has told whether
//! there are any wait until it has. Members bring their parts in the order in which they have started the collectives, and
//! end these in any order: what a member has ended, as it says, is all up to the first that is under way.

use crate::call::{Begun, Form, UNDER_WAY_MAX, Way};
use crate::collective::{Plan, operate};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::handle;
use crate::lines::{self, Shared};
use crate::link::Channel;
use crate::mismatch::{self, About};
use crate::request::{self, Flagged};
use crate::turn::{Turn, numbers};
use crate::world::{self, World, fault};
use engine::order::{Level, Ordered};
use engine::slots::{Behind, INLINE_BYTES};
use engine::{Engine, Line};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

/// Nonblocking collectives that a communicator has had before it gets slots for them: one that is hardly used needs none.
pub const CALLS_BEFORE: u32 = 4;

/// What the nonblocking collectives of one communicator go through.
pub struct Later {
    /// Those that have been started before it was known whether there are slots. One thread at a time starts collectives.
    calls: AtomicU32,
    /// The slots, once the members have tried to get them. `None`: there are none.
    shared: OnceLock<Option<Box<Shared>>>,
    under_way: Ordered<UnderWay>,
}

/// Collectives through slots that this process has not ended, in the order in which it has started them.
struct UnderWay {
    collectives: VecDeque<Started>,
    /// The number of the latest that it has started.
    latest: u32,
}

struct Started {
    number: u32,
    brought: bool,
}

impl Default for Later {
    fn default() -> Later {
        let under_way = UnderWay { collectives: VecDeque::new(), latest: 0 };
        Later { calls: AtomicU32::new(0), shared: OnceLock::new(), under_way: Ordered::new(Level::Table, under_way) }
    }
}

impl Later {
    #[inline]
    fn slots(&self) -> Option<&Shared> {
        self.shared.get()?.as_deref()
    }

    /// Whether all that were started before the one with `number` have brought their parts.
    fn comes_next(&self, number: u32) -> bool {
        self.under_way.lock().comes_next(number)
    }
}

impl UnderWay {
    /// The first that has not brought its part: those before it have.
    fn next(&self) -> usize {
        self.collectives.partition_point(|started| started.brought)
    }

    fn comes_next(&self, number: u32) -> bool {
        self.collectives.get(self.next()).is_some_and(|started| started.number == number)
    }

    fn place(&self, number: u32) -> Option<usize> {
        let first = self.collectives.front()?.number;
        self.collectives.binary_search_by_key(&number.wrapping_sub(first), |started| started.number.wrapping_sub(first)).ok()
    }
}

/// Starts `plan` as the next nonblocking collective on `comm`, and gives its request.
///
/// # Errors
/// Those of the first steps; `MPI_ERR_OTHER` where too many are under way on `comm`.
pub fn start(function: &'static str, comm: &'static Comm, plan: impl Plan) -> Result<handle::Request> {
    let begun = comm.calls.begin(plan.call().form(Form::Nonblocking));
    let owner = Some(comm.handle());
    if comm.remote.is_some() || comm.size() == 1 || comm.is_networked() {
        return request::start_collective(owner, operate(&plan, comm, begun, Channel::lasting(comm, begun)?)?);
    }
    let world = world::get()?;
    let longest = plan.longest_later(comm, &world.tuning).filter(|longest| lines::fits(comm.size() as usize, *longest));
    match (comm.later.shared.get(), longest) {
        (None, _) => match comm.later.calls.fetch_add(1, Ordering::Relaxed) {
            ..CALLS_BEFORE => {}
            CALLS_BEFORE => {
                let (channel, operated) = (Channel::begun(comm, begun)?, plan.run(Channel::lasting(comm, begun)?));
                let comm = comm.share();
                return request::start_collective(owner, async move {
                    Box::pin(decide(&comm, channel)).await?;
                    operated.await
                });
            }
            _ => {
                if let Some(longest) = longest {
                    return Collective::new(function, comm, world, begun, longest, plan)?.start();
                }
            }
        },
        (Some(Some(shared)), Some(longest)) if longest <= INLINE_BYTES || shared.room().is_some() => {
            return Collective::new(function, comm, world, begun, longest, plan)?.start();
        }
        _ => {}
    }
    request::start_collective(owner, plan.run(Channel::lasting(comm, begun)?))
}

/// Gets slots for the nonblocking collectives of `comm`, as a part of the one that `channel` belongs to. Where that fails, it has failed
/// for all members, since nobody ends it without all others: then there are none.
async fn decide(comm: &Comm, channel: Channel) -> Result<()> {
    let agreed = lines::agree_for_later(comm, &channel).await;
    let (shared, result) = match agreed {
        Ok(shared) => (shared, Ok(())),
        Err(error) => (None, Err(error)),
    };
    comm.later.shared.get_or_init(|| shared.map(Box::new));
    comm.engine().completed();
    result
}

/// A collective that goes through slots, if there are some.
struct Collective<P> {
    function: &'static str,
    comm: Arc<Comm>,
    world: &'static World,
    plan: P,
    begun: Begun,
    longest: usize,
    numbers: (u32, u64),
    stage: Stage,
    /// What goes by messages beside the parts, as long as it is not over.
    rest: Option<Messages>,
    /// In [`Stage::Bringing`] whom it waits for.
    behind: Option<Behind>,
    /// In [`Stage::Taking`] and [`Stage::TakingSlices`] the first rank whose part may be missing.
    next: usize,
}

type Messages = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

enum Stage {
    /// It is not known yet whether there are slots.
    Undecided,
    Bringing,
    Taking,
    /// It has brought its slice of what all have brought, which is this, for the second time.
    TakingSlices(Vec<u8>),
    /// Only the rest is not over.
    Resting,
    /// There are none.
    Messages(Messages),
    Over,
}

fn is_over(messages: &mut Messages) -> Result<bool> {
    match messages.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.map(|()| true),
        Poll::Pending => Ok(false),
    }
}

/// Whether this rank has brought its part.
enum Brought {
    Yes,
    /// First one that was started before brings its own, or this has happened.
    NotYet(Option<Behind>),
}

impl<P: Plan> Collective<P> {
    /// # Errors
    /// As [`start`].
    fn new(function: &'static str, comm: &Comm, world: &'static World, begun: Begun, longest: usize, plan: P) -> Result<Collective<P>> {
        let numbers = numbers(comm, begun);
        let mut under_way = comm.later.under_way.lock();
        if under_way.collectives.len() >= UNDER_WAY_MAX {
            return Err(Error::new(crate::consts::MPI_ERR_OTHER, format!("more than {UNDER_WAY_MAX} collectives are under way on the communicator")));
        }
        under_way.collectives.push_back(Started { number: numbers.0, brought: false });
        under_way.latest = numbers.0;
        drop(under_way);
        let mut started =
            Collective { function, comm: comm.share(), world, plan, begun, longest, numbers, stage: Stage::Undecided, rest: None, behind: None, next: 0 };
        if comm.later.shared.get().is_some() {
            started.begin()?;
        }
        Ok(started)
    }

    /// It goes through slots.
    fn begin(&mut self) -> Result<()> {
        self.comm.calls.went(Way::Slots);
        self.stage = Stage::Bringing;
        if self.plan.has_rest() {
            self.rest = Some(Box::pin(self.plan.run_rest(Channel::lasting(&self.comm, self.begun)?)));
        }
        Ok(())
    }

    fn start(mut self) -> Result<handle::Request> {
        let owner = self.comm.handle();
        match self.step() {
            Some(Ok(())) => Ok(request::DONE),
            // It has ended: its request tells how.
            Some(Err(error)) => request::start_collective(Some(owner), async move { Err(error) }),
            None => request::start_flagged(Some(owner), Box::new(self)),
        }
    }

    fn turn<'c>(&'c self, shared: &'c Shared) -> Turn<'c> {
        Turn::later(&self.comm, self.world, self.function, self.begun, shared, self.numbers)
    }

    /// The rank that this one waits for.
    fn awaited(&self) -> Option<usize> {
        match self.stage {
            Stage::Bringing => self.behind.map(|behind| behind.rank),
            Stage::Taking | Stage::TakingSlices(_) => Some(self.next),
            _ => None,
        }
    }

    /// Takes the steps that can be taken now. Whether it is over.
    fn advance(&mut self) -> Result<bool> {
        if let Stage::Undecided = self.stage {
            match self.comm.later.shared.get() {
                None => return Ok(false),
                Some(Some(shared)) if self.longest <= INLINE_BYTES || shared.room().is_some() => {
                    self.begin()?;
                }
                Some(_) => {
                    self.leave();
                    self.stage = Stage::Messages(Box::pin(self.plan.run(Channel::lasting(&self.comm, self.begun)?)));
                }
            }
        }
        if let Stage::Messages(messages) = &mut self.stage {
            return is_over(messages);
        }
        if let Some(rest) = &mut self.rest
            && is_over(rest)?
        {
            self.rest = None;
        }
        mismatch::check(&self.comm, self.begun.tag)?;
        if let Stage::Resting = self.stage {
            return Ok(self.rest.is_none());
        }
        let Some(shared) = self.comm.later.slots() else { return Err(Error::new(crate::consts::MPI_ERR_INTERN, "slots that are not there")) };
        if let Stage::Bringing = self.stage {
            self.behind = None;
            match self.bring(shared)? {
                Brought::Yes => self.stage = Stage::Taking,
                Brought::NotYet(behind) => {
                    self.behind = behind;
                    return Ok(false);
                }
            }
        }
        if let Stage::Taking = self.stage {
            self.next = self.first_missing(shared);
            if self.next < shared.slots.ranks() {
                return Ok(false);
            }
            if !self.plan.combines_slices(shared.slots.ranks()) {
                self.plan.collect(&self.turn(shared))?;
                return self.rest_only();
            }
            self.stage = Stage::TakingSlices(self.plan.bring_slice(&self.turn(shared))?);
            self.next = 0;
            lines::wake(&self.comm, self.world, shared.slots.state(self.comm.rank as usize))?;
        }
        self.next = self.first_missing(shared);
        if self.next < shared.slots.ranks() {
            return Ok(false);
        }
        if let Stage::TakingSlices(own) = &self.stage {
            self.plan.collect_slices(&self.turn(shared), own)?;
        }
        Ok(true)
    }

    /// All parts have been taken: whether that was all.
    fn rest_only(&mut self) -> Result<bool> {
        if self.rest.is_none() {
            return Ok(true);
        }
        self.stage = Stage::Resting;
        self.leave();
        let Some(shared) = self.comm.later.slots() else { return Ok(false) };
        lines::wake(&self.comm, self.world, shared.slots.state(self.comm.rank as usize))?;
        Ok(false)
    }

    /// The first rank from the next one on of which what this rank waits for has not come; as many as there are ranks: all has.
    fn first_missing(&self, shared: &Shared) -> usize {
        let (me, ranks) = (self.comm.rank as usize, shared.slots.ranks());
        (self.next..ranks).find(|rank| *rank != me && self.plan.needs(*rank) && !self.came(shared, *rank)).unwrap_or(ranks)
    }

    /// Whether what this rank waits for has come of `rank`.
    fn came(&self, shared: &Shared, rank: usize) -> bool {
        let (number, mark) = self.numbers;
        match self.stage {
            Stage::TakingSlices(_) => shared.slots.brought_second(rank, number, mark),
            _ => shared.slots.brought_whole(rank, number, mark),
        }
    }

    /// Brings this rank's part, if that can be now.
    fn bring(&self, shared: &Shared) -> Result<Brought> {
        let mut under_way = self.comm.later.under_way.lock();
        if !under_way.comes_next(self.numbers.0) {
            return Ok(Brought::NotYet(None));
        }
        let turn = self.turn(shared);
        if !self.plan.offer(&turn)? {
            return Ok(Brought::NotYet(turn.behind()));
        }
        let at = under_way.next();
        under_way.collectives[at].brought = true;
        drop(under_way);
        lines::wake(&self.comm, self.world, shared.slots.state(self.comm.rank as usize))?;
        Ok(Brought::Yes)
    }

    /// What a wait in vain comes to: a process has failed, or another one has called something else.
    ///
    /// # Errors
    /// That.
    fn look_around(&self) -> Result<()> {
        let Some(rank) = self.awaited() else { return Ok(()) };
        let engine = self.comm.engine();
        if engine.has_failures()
            && let Some(why) = engine.context_failed(self.comm.coll)
        {
            return Err(fault(why));
        }
        drop(engine);
        if mismatch::asking() {
            let about = About { context: self.comm.context, rank: self.comm.rank, begun: self.begun };
            mismatch::ask(self.world, &about, self.comm.group.process(rank as u32))?;
        }
        Ok(())
    }
}

impl<P> Collective<P> {
    /// It is not under way in the slots any more: says what this process has ended, where that has changed.
    fn leave(&self) {
        let mut under_way = self.comm.later.under_way.lock();
        let Some(at) = under_way.place(self.numbers.0) else { return };
        under_way.collectives.remove(at);
        if at > 0 {
            return;
        }
        let ended = under_way.collectives.front().map_or(under_way.latest, |first| first.number.wrapping_sub(1));
        if let Some(shared) = self.comm.later.slots() {
            shared.slots.end(ended);
        }
    }
}

impl<P> Drop for Collective<P> {
    /// One that has no request holds up no other.
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::Over) {
            self.leave();
        }
    }
}

impl<P: Plan> Flagged for Collective<P> {
    fn step(&mut self) -> Option<Result<()>> {
        let result = match self.advance() {
            Ok(false) => match self.look_around() {
                Ok(()) => return None,
                Err(error) => Err(error),
            },
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        self.leave();
        self.stage = Stage::Over;
        let woken = match self.comm.later.slots() {
            Some(shared) => lines::wake(&self.comm, self.world, shared.slots.state(self.comm.rank as usize)),
            None => Ok(()),
        };
        Some(result.and(woken))
    }

    fn ready(&self, engine: &Engine) -> bool {
        let (Some(shared), (number, _)) = (self.comm.later.slots(), self.numbers) else { return false };
        let flag = match self.stage {
            Stage::Bringing => self.comm.later.comes_next(number) && self.behind.is_none_or(|behind| shared.slots.has_ended(behind.rank, behind.number)),
            Stage::Taking | Stage::TakingSlices(_) => self.came(shared, self.next),
            Stage::Undecided | Stage::Resting | Stage::Messages(_) | Stage::Over => return false,
        };
        flag || (engine.has_failures() && engine.vci() == self.comm.context.vci() && engine.context_failed(self.comm.coll).is_some())
    }

    fn flag(&self) -> Option<(&'static Line, usize)> {
        let (shared, rank) = (self.comm.later.slots()?, self.awaited()?);
        Some((shared.slots.state(rank), self.comm.rank as usize))
    }
}
