//! Processes that become connected, or are made, while the program runs (MPI-5.0 chapter 11).

use crate::args::{bytes, room, slice, store, store_text};
use crate::{finish, finish_on};
use mpi::comm::{self, find_intra};
use mpi::consts::*;
use mpi::dynamic::spawn::Wanted;
use mpi::dynamic::{self, name};
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::world;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

pub unsafe fn MPI_Comm_get_parent(parent: *mut Comm) -> c_int {
    finish("MPI_Comm_get_parent", world::get().and_then(|_| store(parent, "parent", dynamic::parent())))
}

pub unsafe fn MPI_Open_port(info: Info, port_name: *mut c_char) -> c_int {
    let opened = room(port_name, "port_name").and_then(|()| {
        mpi::info::hints(info)?;
        store_text(port_name, "port_name", dynamic::open_port()?.as_bytes(), MPI_MAX_PORT_NAME)
    });
    finish("MPI_Open_port", opened)
}

pub unsafe fn MPI_Close_port(port_name: *const c_char) -> c_int {
    finish("MPI_Close_port", bytes(port_name, MPI_ERR_ARG, "port_name").and_then(dynamic::close_port))
}

/// Gives the program the communicator that was made.
unsafe fn give(made: Result<Arc<comm::Comm>>, newcomm: *mut Comm) -> Result<()> {
    store(newcomm, "newcomm", comm::publish(made?)?)
}

/// Accepts or connects at a port, whose name is looked at where the call wants it.
unsafe fn meet(
    function: &'static str,
    port_name: *const c_char,
    comm: Comm,
    newcomm: *mut Comm,
    made: impl FnOnce(&'static comm::Comm, &dyn Fn() -> Result<Vec<u8>>) -> Result<Arc<comm::Comm>>,
) -> c_int {
    let name = || bytes(port_name, MPI_ERR_ARG, "port_name").map(<[u8]>::to_vec);
    let given = room(newcomm, "newcomm").and_then(|()| give(find_intra(comm).and_then(|comm| made(comm, &name)), newcomm));
    finish_on(comm, function, given)
}

pub unsafe fn MPI_Comm_accept(port_name: *const c_char, info: Info, root: c_int, comm: Comm, newcomm: *mut Comm) -> c_int {
    meet("MPI_Comm_accept", port_name, comm, newcomm, |comm, name| dynamic::accept(comm, root, name, info))
}

pub unsafe fn MPI_Comm_connect(port_name: *const c_char, info: Info, root: c_int, comm: Comm, newcomm: *mut Comm) -> c_int {
    meet("MPI_Comm_connect", port_name, comm, newcomm, |comm, name| dynamic::connect(comm, root, name, info))
}

pub unsafe fn MPI_Comm_join(fd: c_int, intercomm: *mut Comm) -> c_int {
    finish("MPI_Comm_join", room(intercomm, "intercomm").and_then(|()| give(dynamic::join(fd), intercomm)))
}

/// The words of an array that ends with a null pointer; none where there is no array.
unsafe fn words(array: *const *mut c_char) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    if !array.is_null() {
        let mut at = array;
        while !(*at).is_null() {
            all.push(CStr::from_ptr(*at).to_bytes().to_vec());
            at = at.add(1);
        }
    }
    all
}

/// Spawns what `wanted` gives at the root, which tells the cell how many processes that are, and gives the program the intercommunicator and each one's code.
unsafe fn spawn(
    function: &'static str,
    root: c_int,
    comm: Comm,
    (intercomm, errcodes): (*mut Comm, *mut c_int),
    wanted: impl FnOnce(&Cell<Option<usize>>) -> Result<Vec<Wanted>>,
) -> c_int {
    let asked = Cell::new(None);
    let spawned = room(intercomm, "intercomm").and_then(|()| find_intra(comm)).and_then(|c| {
        let made = dynamic::spawn::spawn(function, c, root, || wanted(&asked));
        let (count, code) = match &made {
            Ok(inter) => (inter.peers().size() as usize, MPI_SUCCESS),
            Err(error) => (asked.get().unwrap_or(0), error.class),
        };
        if !errcodes.is_null() {
            (0..count).for_each(|at| errcodes.add(at).write(code));
        }
        give(made, intercomm)
    });
    finish_on(comm, function, spawned)
}

pub unsafe fn MPI_Comm_spawn(
    command: *const c_char,
    argv: *mut *mut c_char,
    maxprocs: c_int,
    info: Info,
    root: c_int,
    comm: Comm,
    intercomm: *mut Comm,
    array_of_errcodes: *mut c_int,
) -> c_int {
    spawn("MPI_Comm_spawn", root, comm, (intercomm, array_of_errcodes), |asked| {
        let command = bytes(command, MPI_ERR_ARG, "command")?.to_vec();
        asked.set(usize::try_from(maxprocs).ok());
        Ok(vec![Wanted { command, arguments: words(argv), processes_max: maxprocs, info }])
    })
}

pub unsafe fn MPI_Comm_spawn_multiple(
    count: c_int,
    array_of_commands: *mut *mut c_char,
    array_of_argv: *mut *mut *mut c_char,
    array_of_maxprocs: *const c_int,
    array_of_info: *const Info,
    root: c_int,
    comm: Comm,
    intercomm: *mut Comm,
    array_of_errcodes: *mut c_int,
) -> c_int {
    spawn("MPI_Comm_spawn_multiple", root, comm, (intercomm, array_of_errcodes), |asked| {
        let programs = usize::try_from(count).ok().filter(|count| *count > 0);
        let programs = programs.ok_or_else(|| Error::new(MPI_ERR_ARG, format!("count = {count} is not positive")))?;
        let commands = slice(array_of_commands.cast_const(), programs, "array_of_commands")?;
        let most = slice(array_of_maxprocs, programs, "array_of_maxprocs")?;
        let infos = slice(array_of_info, programs, "array_of_info")?;
        asked.set(most.iter().map(|most| usize::try_from(*most).ok()).sum());
        let one = |at: usize| {
            let command = bytes(commands[at], MPI_ERR_ARG, "a command")?.to_vec();
            // No array at all (MPI_ARGVS_NULL): no program has arguments.
            let arguments = if array_of_argv.is_null() { Vec::new() } else { words(*array_of_argv.add(at)) };
            Ok(Wanted { command, arguments, processes_max: most[at], info: infos[at] })
        };
        (0..programs).map(one).collect()
    })
}

pub unsafe fn MPI_Publish_name(service_name: *const c_char, info: Info, port_name: *const c_char) -> c_int {
    let published = world::get().and_then(|_| {
        mpi::info::hints(info)?;
        name::publish(bytes(service_name, MPI_ERR_ARG, "service_name")?, bytes(port_name, MPI_ERR_ARG, "port_name")?)
    });
    finish("MPI_Publish_name", published)
}

pub unsafe fn MPI_Unpublish_name(service_name: *const c_char, info: Info, port_name: *const c_char) -> c_int {
    let _ = port_name;
    let unpublished = world::get().and_then(|_| {
        mpi::info::hints(info)?;
        name::unpublish(bytes(service_name, MPI_ERR_ARG, "service_name")?)
    });
    finish("MPI_Unpublish_name", unpublished)
}

pub unsafe fn MPI_Lookup_name(service_name: *const c_char, info: Info, port_name: *mut c_char) -> c_int {
    let found = world::get().and_then(|_| {
        room(port_name, "port_name")?;
        mpi::info::hints(info)?;
        let port = name::look_up(bytes(service_name, MPI_ERR_ARG, "service_name")?)?;
        store_text(port_name, "port_name", port.as_bytes(), MPI_MAX_PORT_NAME)
    });
    finish("MPI_Lookup_name", found)
}
