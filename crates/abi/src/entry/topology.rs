//! Virtual topologies (MPI-5.0 §8.5).

use crate::args::store;
use crate::{finish, finish_on};
use mpi::comm::{Comm as Communicator, find, find_intra};
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::info::Pairs;
use mpi::topology::{self, Cart, Dist, Graph, Topology};
use mpi::{creation, info as infos};
use std::ffi::c_int;
use std::sync::Arc;

/// `n` integers.
unsafe fn ints<'a>(what: &str, n: c_int, from: *const c_int) -> Result<&'a [c_int]> {
    match usize::try_from(n) {
        Ok(0) => Ok(&[]),
        Err(_) => Err(Error::new(MPI_ERR_ARG, format!("{what}: {n} entries are asked for"))),
        Ok(_) if from.is_null() => Err(Error::new(MPI_ERR_ARG, format!("{what} is null"))),
        Ok(n) => Ok(std::slice::from_raw_parts(from, n)),
    }
}

/// Stores integers where there is room for `most` of them, which must suffice.
unsafe fn store_ints(what: &str, place: *mut c_int, most: c_int, values: &[c_int]) -> Result<()> {
    if most < 0 || (most as usize) < values.len() {
        return Err(Error::new(MPI_ERR_ARG, format!("there is room for {most} entries of {what}, and there are {}", values.len())));
    }
    store_first(what, place, values)
}

unsafe fn store_first(what: &str, place: *mut c_int, values: &[c_int]) -> Result<()> {
    if place.is_null() && !values.is_empty() {
        return Err(Error::new(MPI_ERR_ARG, format!("{what} is null")));
    }
    std::ptr::copy_nonoverlapping(values.as_ptr(), place, values.len());
    Ok(())
}

fn flags(values: &[c_int]) -> Vec<bool> {
    values.iter().map(|v| *v != 0).collect()
}

fn as_ints(flags: &[bool]) -> Vec<c_int> {
    flags.iter().map(|f| c_int::from(*f)).collect()
}

fn missing(kind: &str) -> Box<Error> {
    Error::new(MPI_ERR_TOPOLOGY, format!("the communicator has no {kind} topology"))
}

fn cart(comm: Comm) -> Result<(&'static Communicator, &'static Cart)> {
    let c = find(comm)?;
    match c.topology.get().map(|t| &**t) {
        Some(Topology::Cart(cart)) => Ok((c, cart)),
        _ => Err(missing("Cartesian")),
    }
}

fn graph(comm: Comm) -> Result<&'static Graph> {
    match find(comm)?.topology.get().map(|t| &**t) {
        Some(Topology::Graph(graph)) => Ok(graph),
        _ => Err(missing("graph")),
    }
}

fn dist(comm: Comm) -> Result<&'static Dist> {
    match find(comm)?.topology.get().map(|t| &**t) {
        Some(Topology::Dist(dist)) => Ok(dist),
        _ => Err(missing("distributed graph")),
    }
}

/// Gives a new communicator its topology and a handle.
fn publish(made: Option<Arc<Communicator>>, topology: Topology) -> Result<Comm> {
    if let Some(made) = &made {
        made.topology.get_or_init(|| Arc::new(topology));
    }
    creation::publish(made)
}

unsafe fn grid(comm: Comm, ndims: c_int, dims: *const c_int, periods: *const c_int) -> Result<(&'static Communicator, Cart)> {
    let c = find_intra(comm)?;
    if ndims < 0 {
        return Err(Error::new(MPI_ERR_DIMS, format!("ndims = {ndims} is negative")));
    }
    Ok((c, Cart::new(ints("dims", ndims, dims)?, &flags(ints("periods", ndims, periods)?), c.size())?))
}

pub unsafe fn MPI_Topo_test(comm: Comm, status: *mut c_int) -> c_int {
    let kind = find(comm).map(|c| c.topology.get().map_or(MPI_UNDEFINED, |t| t.kind()));
    finish_on(comm, "MPI_Topo_test", kind.and_then(|kind| store(status, "status", kind)))
}

pub unsafe fn MPI_Dims_create(nnodes: c_int, ndims: c_int, dims: *mut c_int) -> c_int {
    let fill = || -> Result<()> {
        if ndims < 0 {
            return Err(Error::new(MPI_ERR_DIMS, format!("ndims = {ndims} is negative")));
        }
        let mut filled = ints("dims", ndims, dims)?.to_vec();
        topology::dims_create(nnodes, &mut filled)?;
        store_first("dims", dims, &filled)
    };
    finish("MPI_Dims_create", fill())
}

pub unsafe fn MPI_Cart_create(comm_old: Comm, ndims: c_int, dims: *const c_int, periods: *const c_int, reorder: c_int, comm_cart: *mut Comm) -> c_int {
    let made = grid(comm_old, ndims, dims, periods).and_then(|(c, cart)| {
        let order = creation::order("MPI_Cart_create", c, cart.size(), reorder != 0, || Ok((cart.edges(), cart.blocks())))?;
        let made = creation::placed("MPI_Cart_create", c, &order)?;
        publish(made, Topology::Cart(cart))
    });
    finish_on(comm_old, "MPI_Cart_create", made.and_then(|c| store(comm_cart, "comm_cart", c)))
}

/// Ranks keep their order, as the standard allows (MPI-5.0 §8.5.8): where the others run is not known without asking them.
pub unsafe fn MPI_Cart_map(comm: Comm, ndims: c_int, dims: *const c_int, periods: *const c_int, newrank: *mut c_int) -> c_int {
    let mapped = grid(comm, ndims, dims, periods).map(|(c, cart)| place_of(c, cart.size()));
    finish_on(comm, "MPI_Cart_map", mapped.and_then(|rank| store(newrank, "newrank", rank)))
}

fn place_of(comm: &Communicator, places: u32) -> c_int {
    if comm.rank < places { comm.rank as c_int } else { MPI_UNDEFINED }
}

pub unsafe fn MPI_Cartdim_get(comm: Comm, ndims: *mut c_int) -> c_int {
    finish_on(comm, "MPI_Cartdim_get", cart(comm).and_then(|(_, cart)| store(ndims, "ndims", cart.dims.len() as c_int)))
}

pub unsafe fn MPI_Cart_get(comm: Comm, maxdims: c_int, dims: *mut c_int, periods: *mut c_int, coords: *mut c_int) -> c_int {
    let got = cart(comm).and_then(|(c, cart)| {
        store_ints("dims", dims, maxdims, &cart.dims)?;
        store_ints("periods", periods, maxdims, &as_ints(&cart.periods))?;
        store_ints("coords", coords, maxdims, &cart.coords(c.rank))
    });
    finish_on(comm, "MPI_Cart_get", got)
}

pub unsafe fn MPI_Cart_rank(comm: Comm, coords: *const c_int, rank: *mut c_int) -> c_int {
    let found = cart(comm).and_then(|(_, cart)| cart.rank(ints("coords", cart.dims.len() as c_int, coords)?));
    finish_on(comm, "MPI_Cart_rank", found.and_then(|r| store(rank, "rank", r as c_int)))
}

fn check_rank(comm: &Communicator, rank: c_int) -> Result<u32> {
    let known = u32::try_from(rank).ok().filter(|r| *r < comm.size());
    known.ok_or_else(|| Error::new(MPI_ERR_RANK, format!("rank = {rank} is not a rank of a communicator of {} ranks", comm.size())))
}

pub unsafe fn MPI_Cart_coords(comm: Comm, rank: c_int, maxdims: c_int, coords: *mut c_int) -> c_int {
    let found = cart(comm).and_then(|(c, cart)| store_ints("coords", coords, maxdims, &cart.coords(check_rank(c, rank)?)));
    finish_on(comm, "MPI_Cart_coords", found)
}

pub unsafe fn MPI_Cart_shift(comm: Comm, direction: c_int, disp: c_int, rank_source: *mut c_int, rank_dest: *mut c_int) -> c_int {
    let shifted = cart(comm).and_then(|(c, cart)| {
        let dimension = usize::try_from(direction).ok().filter(|d| *d < cart.dims.len());
        let outside = || Error::new(MPI_ERR_ARG, format!("direction = {direction} is not one of {} dimensions", cart.dims.len()));
        let (from, to) = cart.shift(c.rank, dimension.ok_or_else(outside)?, disp);
        let rank = |r: Option<u32>| r.map_or(MPI_PROC_NULL, |r| r as c_int);
        store(rank_source, "rank_source", rank(from))?;
        store(rank_dest, "rank_dest", rank(to))
    });
    finish_on(comm, "MPI_Cart_shift", shifted)
}

pub unsafe fn MPI_Cart_sub(comm: Comm, remain_dims: *const c_int, newcomm: *mut Comm) -> c_int {
    let made = cart(comm).and_then(|(c, cart)| {
        let remain = flags(ints("remain_dims", cart.dims.len() as c_int, remain_dims)?);
        let (sub, color, key) = cart.sub(c.rank, &remain);
        publish(creation::split("MPI_Cart_sub", c, color, key)?, Topology::Cart(sub))
    });
    finish_on(comm, "MPI_Cart_sub", made.and_then(|c| store(newcomm, "newcomm", c)))
}

unsafe fn whole_graph(comm: Comm, nnodes: c_int, index: *const c_int, edges: *const c_int) -> Result<(&'static Communicator, Graph)> {
    let c = find_intra(comm)?;
    let index = ints("index", nnodes, index)?;
    let edges = ints("edges", index.last().copied().unwrap_or(0), edges)?;
    Ok((c, Graph::new(index, edges, c.size())?))
}

pub unsafe fn MPI_Graph_create(comm_old: Comm, nnodes: c_int, indx: *const c_int, edges: *const c_int, reorder: c_int, comm_graph: *mut Comm) -> c_int {
    let made = whole_graph(comm_old, nnodes, indx, edges).and_then(|(c, graph)| {
        let order = creation::order("MPI_Graph_create", c, graph.index.len() as u32, reorder != 0, || Ok((graph.edges(), Vec::new())))?;
        let made = creation::placed("MPI_Graph_create", c, &order)?;
        publish(made, Topology::Graph(graph))
    });
    finish_on(comm_old, "MPI_Graph_create", made.and_then(|c| store(comm_graph, "comm_graph", c)))
}

pub unsafe fn MPI_Graph_map(comm: Comm, nnodes: c_int, indx: *const c_int, edges: *const c_int, newrank: *mut c_int) -> c_int {
    let mapped = whole_graph(comm, nnodes, indx, edges).map(|(c, graph)| place_of(c, graph.index.len() as u32));
    finish_on(comm, "MPI_Graph_map", mapped.and_then(|rank| store(newrank, "newrank", rank)))
}

pub unsafe fn MPI_Graphdims_get(comm: Comm, nnodes: *mut c_int, nedges: *mut c_int) -> c_int {
    let got = graph(comm).and_then(|graph| {
        store(nnodes, "nnodes", graph.index.len() as c_int)?;
        store(nedges, "nedges", graph.edges.len() as c_int)
    });
    finish_on(comm, "MPI_Graphdims_get", got)
}

pub unsafe fn MPI_Graph_get(comm: Comm, maxindex: c_int, maxedges: c_int, indx: *mut c_int, edges: *mut c_int) -> c_int {
    let got = graph(comm).and_then(|graph| {
        store_ints("index", indx, maxindex, &graph.index)?;
        store_ints("edges", edges, maxedges, &graph.edges)
    });
    finish_on(comm, "MPI_Graph_get", got)
}

fn neighbors(comm: Comm, rank: c_int) -> Result<&'static [c_int]> {
    let graph = graph(comm)?;
    Ok(graph.neighbors(check_rank(find(comm)?, rank)? as usize))
}

pub unsafe fn MPI_Graph_neighbors_count(comm: Comm, rank: c_int, nneighbors: *mut c_int) -> c_int {
    let counted = neighbors(comm, rank).and_then(|list| store(nneighbors, "nneighbors", list.len() as c_int));
    finish_on(comm, "MPI_Graph_neighbors_count", counted)
}

pub unsafe fn MPI_Graph_neighbors(comm: Comm, rank: c_int, maxneighbors: c_int, neighbors_: *mut c_int) -> c_int {
    let got = neighbors(comm, rank).and_then(|list| store_ints("neighbors", neighbors_, maxneighbors, list));
    finish_on(comm, "MPI_Graph_neighbors", got)
}

/// Weights of `n` edges: none where the program says `MPI_UNWEIGHTED`.
unsafe fn weights(what: &str, n: usize, from: *const c_int) -> Result<Option<Vec<c_int>>> {
    let given = match from as usize {
        MPI_UNWEIGHTED => return Ok(None),
        MPI_WEIGHTS_EMPTY if n == 0 => Vec::new(),
        MPI_WEIGHTS_EMPTY => {
            return Err(Error::new(MPI_ERR_ARG, format!("{what} is MPI_WEIGHTS_EMPTY, and there are {n} edges")));
        }
        _ => ints(what, n as c_int, from)?.to_vec(),
    };
    match given.iter().find(|w| **w < 0) {
        Some(weight) => Err(Error::new(MPI_ERR_ARG, format!("{what} holds {weight}, which is negative"))),
        None => Ok(Some(given)),
    }
}

fn check_ranks(comm: &Communicator, ranks: &[c_int]) -> Result<()> {
    ranks.iter().try_for_each(|rank| check_rank(comm, *rank).map(|_| ()))
}

/// Makes a distributed graph's communicator. Nodes are ranks: who gets another rank gets that node's edges.
fn publish_dist(function: &'static str, comm: &Communicator, mine: Dist, reorder: bool, hints: &Pairs) -> Result<Comm> {
    let mut dists = Vec::new();
    let order = creation::order(function, comm, comm.size(), reorder, || {
        dists = creation::gather_dists(function, comm, &mine)?;
        Ok((dists.iter().enumerate().flat_map(|(node, dist)| dist.edges(node as u32)).collect(), Vec::new()))
    })?;
    let made = creation::placed(function, comm, &order)?;
    if let Some(made) = &made {
        made.info.lock().unwrap_or_else(|e| e.into_inner()).update(hints);
    }
    let place = made.as_ref().map_or(0, |m| m.rank as usize);
    let dist = if dists.is_empty() { mine } else { dists.swap_remove(place) };
    publish(made, Topology::Dist(dist))
}

pub unsafe fn MPI_Dist_graph_create_adjacent(
    comm_old: Comm,
    indegree: c_int,
    sources: *const c_int,
    sourceweights: *const c_int,
    outdegree: c_int,
    destinations: *const c_int,
    destweights: *const c_int,
    info: Info,
    reorder: c_int,
    comm_dist_graph: *mut Comm,
) -> c_int {
    let made = find_intra(comm_old).and_then(|c| {
        let hints = infos::hints(info)?;
        let (from, to) = (ints("sources", indegree, sources)?, ints("destinations", outdegree, destinations)?);
        check_ranks(c, from)?;
        check_ranks(c, to)?;
        let (from_weights, to_weights) = (weights("sourceweights", from.len(), sourceweights)?, weights("destweights", to.len(), destweights)?);
        // A side without edges says nothing about weights.
        let weighted = match (&from_weights, &to_weights) {
            (Some(_), Some(_)) => true,
            (None, None) => false,
            (Some(_), None) if to.is_empty() && !from.is_empty() => true,
            (None, Some(_)) if from.is_empty() && !to.is_empty() => true,
            (Some(_), None) if from.is_empty() => false,
            (None, Some(_)) if to.is_empty() => false,
            _ => return Err(Error::new(MPI_ERR_ARG, "only one of sourceweights and destweights is MPI_UNWEIGHTED")),
        };
        let dist = Dist {
            sources: from.to_vec(),
            source_weights: from_weights.unwrap_or_default(),
            destinations: to.to_vec(),
            destination_weights: to_weights.unwrap_or_default(),
            weighted,
        };
        publish_dist("MPI_Dist_graph_create_adjacent", c, dist, reorder != 0, &hints)
    });
    finish_on(comm_old, "MPI_Dist_graph_create_adjacent", made.and_then(|c| store(comm_dist_graph, "comm_dist_graph", c)))
}

pub unsafe fn MPI_Dist_graph_create(
    comm_old: Comm,
    n: c_int,
    sources: *const c_int,
    degrees: *const c_int,
    destinations: *const c_int,
    weights_: *const c_int,
    info: Info,
    reorder: c_int,
    comm_dist_graph: *mut Comm,
) -> c_int {
    let made = find_intra(comm_old).and_then(|c| {
        let hints = infos::hints(info)?;
        let (from, degrees) = (ints("sources", n, sources)?, ints("degrees", n, degrees)?);
        if let Some(degree) = degrees.iter().find(|d| **d < 0) {
            return Err(Error::new(MPI_ERR_ARG, format!("degrees holds {degree}, which is negative")));
        }
        let total: c_int = degrees
            .iter()
            .try_fold(0, |sum: c_int, d| sum.checked_add(*d))
            .ok_or_else(|| Error::new(MPI_ERR_ARG, "there are more edges than 31 bits count"))?;
        let to = ints("destinations", total, destinations)?;
        check_ranks(c, from)?;
        check_ranks(c, to)?;
        let given = weights("weights", to.len(), weights_)?;
        let starts = from.iter().zip(degrees).flat_map(|(source, degree)| std::iter::repeat_n(*source, *degree as usize));
        let edges: Vec<[c_int; 3]> = starts.zip(to).enumerate().map(|(at, (source, to))| [source, *to, given.as_ref().map_or(0, |g| g[at])]).collect();
        let dist = creation::gather_edges("MPI_Dist_graph_create", c, &edges, given.is_some())?;
        publish_dist("MPI_Dist_graph_create", c, dist, reorder != 0, &hints)
    });
    finish_on(comm_old, "MPI_Dist_graph_create", made.and_then(|c| store(comm_dist_graph, "comm_dist_graph", c)))
}

pub unsafe fn MPI_Dist_graph_neighbors_count(comm: Comm, indegree: *mut c_int, outdegree: *mut c_int, weighted: *mut c_int) -> c_int {
    let got = dist(comm).and_then(|dist| {
        store(indegree, "indegree", dist.sources.len() as c_int)?;
        store(outdegree, "outdegree", dist.destinations.len() as c_int)?;
        store(weighted, "weighted", c_int::from(dist.weighted))
    });
    finish_on(comm, "MPI_Dist_graph_neighbors_count", got)
}

/// Gives as many neighbours as there is room for.
pub unsafe fn MPI_Dist_graph_neighbors(
    comm: Comm,
    maxindegree: c_int,
    sources: *mut c_int,
    sourceweights: *mut c_int,
    maxoutdegree: c_int,
    destinations: *mut c_int,
    destweights: *mut c_int,
) -> c_int {
    let got = dist(comm).and_then(|dist| {
        let each = [
            ("sources", maxindegree, sources, &dist.sources),
            ("sourceweights", maxindegree, sourceweights, &dist.source_weights),
            ("destinations", maxoutdegree, destinations, &dist.destinations),
            ("destweights", maxoutdegree, destweights, &dist.destination_weights),
        ];
        for (what, most, place, values) in each {
            if most < 0 {
                return Err(Error::new(MPI_ERR_ARG, format!("there is room for {most} entries of {what}")));
            }
            let unwanted = [MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY].contains(&(place as usize));
            if !unwanted {
                store_first(what, place, &values[..values.len().min(most as usize)])?;
            }
        }
        Ok(())
    });
    finish_on(comm, "MPI_Dist_graph_neighbors", got)
}
