//! MPI-5.0 §6.3.

use super::choose::{Barrier, Case};
use super::work::{after, before};
use super::{IN_FLIGHT, Link, Tuning};
use crate::error::Result;

/// Returns once every rank of the group has called it. No temporaries.
pub async fn barrier<L: Link>(link: &L, tuning: &Tuning) -> Result<()> {
    if link.size() == 1 {
        return Ok(());
    }
    match tuning.barrier.pick(&Case::new(link, 0)) {
        Barrier::Dissemination | Barrier::Hosts => dissemination(link).await,
        Barrier::Tree => tree(link).await,
        Barrier::Flat => flat(link).await,
    }
}

/// ceil(log2 n) steps, n messages each (Hensgen, Finkel, Manber 1988).
async fn dissemination<L: Link>(link: &L) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let mut step = 1;
    while step < ranks {
        let heard = link.recv(before(rank, step, ranks), &mut []);
        let told = link.send(after(rank, step, ranks), &[]);
        told.await?;
        heard.await?;
        step <<= 1;
    }
    Ok(())
}

/// Up a binomial tree and down again: 2 (n - 1) messages.
async fn tree<L: Link>(link: &L) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let mut mask = 1;
    while mask < ranks && rank & mask == 0 {
        if rank + mask < ranks {
            link.recv(rank + mask, &mut []).await?;
        }
        mask <<= 1;
    }
    if rank != 0 {
        let answer = link.recv(rank - mask, &mut []);
        link.send(rank - mask, &[]).await?;
        answer.await?;
    }
    while mask > 1 {
        mask >>= 1;
        if rank + mask < ranks {
            link.send(rank + mask, &[]).await?;
        }
    }
    Ok(())
}

/// Everyone tells rank 0, which answers: each rank but one wakes once.
async fn flat<L: Link>(link: &L) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    if rank != 0 {
        let answer = link.recv(0, &mut []);
        link.send(0, &[]).await?;
        return answer.await;
    }
    for first in (1..ranks).step_by(IN_FLIGHT) {
        let last = ranks.min(first + IN_FLIGHT);
        let heard: Vec<_> = (first..last).map(|from| link.recv(from, &mut [])).collect();
        for op in heard {
            op.await?;
        }
    }
    for first in (1..ranks).step_by(IN_FLIGHT) {
        let last = ranks.min(first + IN_FLIGHT);
        let told: Vec<_> = (first..last).map(|to| link.send(to, &[])).collect();
        for op in told {
            op.await?;
        }
    }
    Ok(())
}
