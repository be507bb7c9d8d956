//! The table of all configuration. A row's comment is its meaning, as users see it.
//!
//! `NAME = switch(default)`, `number(unit, default, least..=most)`, `choice(default, [all])` or `text(default)`; users
//! set it as `WHIMBREL_NAME`, or as `name = value` in the configuration file.

crate::table! {
    /// What decides how messages on shared memory go, where `WHIMBREL_EAGER_MAX` and `WHIMBREL_COOPERATIVE_MIN` are not set: measured costs of this machine,
    /// which a file in the user's cache directory keeps (`auto`), or the file of this name, with a slash; costs that are measured anew (`measure`); or the
    /// defaults of those two (`off`). What messages take corrects them. Where ranks share cores, the defaults. `whimbrel info --costs` prints them.
    COSTS = text("auto");

    /// Largest message that goes with its header; longer ones are fetched when they are matched. Measured costs decide unless it is set (`WHIMBREL_COSTS`).
    EAGER_MAX = number(Bytes, 131_072, 0..=131_072);

    /// What one sender may leave unmatched at a receiver; past it messages go as headers only.
    UNEXPECTED_MAX = number(Bytes, 1_048_576, 4_096..=1_073_741_824);

    /// What the rings into one process may take together when everybody on the host talks to it, and by how much those that are used a lot may grow together.
    RING_MEMORY = number(Bytes, 3_145_728, 65_536..=1_073_741_824);

    /// Copy large messages straight between processes, where the system allows it.
    SINGLE_COPY = switch(true);

    /// Give memory out (`MPI_Alloc_mem`, from 64 KiB on) that peers on this host map when a message first lies there, and copy from and to theirs by load and
    /// store instead of system calls. `WHIMBREL_SINGLE_COPY` must be on, too.
    MAP_MEMORY = switch(false);

    /// Short one-sided calls to ordinary memory (`MPI_Win_create`, dynamic windows) of a process of this host that waits in MPI itself are done by that
    /// process, as long as it answers at once: where every rank has a core (`auto`), `always`, or `off`. All ranks take the same.
    REQUEST_LINES = choice("auto", ["auto", "always", "off"]);

    /// Smallest message that sender and receiver copy together. Measured costs decide unless it is set (`WHIMBREL_COSTS`).
    COOPERATIVE_MIN = number(Bytes, 65_536, 65_536..=1_073_741_824);

    /// Whether a large receive that is posted before its message comes is announced to the sender, which then begins to copy at once:
    /// `adaptive` where that has turned out to be of use, and between memories where no ranks share a core, `always`, or `off`.
    SPECULATION = choice("adaptive", ["adaptive", "always", "off"]);

    /// Announcements of an envelope pause when fewer than this share of them is used.
    RTR_USAGE_MIN = number(Percent, 80, 0..=100);

    /// How a sender finds out which message an announcement is for: both sides count messages (`sequence`), or they acknowledge requests to
    /// each other (`acks`; between hosts nothing is announced then, and every long message is pulled). All ranks take the same.
    RENDEZVOUS = choice("sequence", ["sequence", "acks"]);

    /// Who goes on with transfers while the program computes: a helping thread that copies where a core is idle (`auto`), nobody (`inline`), or
    /// a thread that deals with everything, at the price of a lock around the library (`thread`).
    PROGRESS = choice("auto", ["auto", "inline", "thread"]);

    /// How ranks reach each other: shared memory within a host, and between hosts InfiniBand and RoCE adapters with UDP beside them, or UDP where there are
    /// none (`auto`), shared memory alone (`shm`), or everywhere UDP (`udp`), RDMA devices (`verbs`: InfiniBand, RoCE, iWARP, in software too), or these with UDP
    /// beside them (`verbs+udp`). All ranks take the same.
    FABRIC = choice("auto", ["auto", "shm", "udp", "verbs", "verbs+udp"]);

    /// How messages go over RDMA devices: as datagrams, and over connections to those peers whose traffic earns them (`hybrid`), or as datagrams alone, with the
    /// same memory for any number of peers (`ud`), or over a connection to each peer that is spoken to, with remote reads of long messages (`rc`: only with
    /// `WHIMBREL_FABRIC=verbs`; iWARP has nothing else). All ranks take the same.
    VERBS = choice("hybrid", ["hybrid", "ud", "rc"]);

    /// Most connections of a process (`WHIMBREL_VERBS=hybrid`).
    VERBS_CONNECTIONS = number(Count, 64, 1..=512);

    /// What earns a peer a connection: so many messages within about `WHIMBREL_VERBS_PERIOD`, sent or received, where one counts as one more for each 8 KiB of it,
    /// and as 16 more if it is fetched. An eighth of that keeps it (`WHIMBREL_VERBS=hybrid`).
    VERBS_PRICE = number(Count, 256, 1..=1_000_000);

    /// What a peer has earned halves each time that so much has passed. After a connection that has broken, the next one waits for as long, later for longer
    /// (`WHIMBREL_VERBS=hybrid`).
    VERBS_PERIOD = number(Milliseconds, 1_000, 1..=3_600_000);

    /// How long messages move over connections of RDMA devices (`WHIMBREL_VERBS=rc`): receivers read them (`read`), or say where they want them, and senders
    /// write (`write`), or they go piece by piece through registered memory of the library, with a copy on either side (`pieces`, to compare with). All ranks
    /// take the same.
    VERBS_RENDEZVOUS = choice("read", ["read", "write", "pieces"]);

    /// Memory of the program that stays registered with an RDMA device for the next message from or to it, at most, and a sixteenth of the machine's memory
    /// (`WHIMBREL_VERBS=rc`). Only memory whose changes the kernel tells of is kept (`userfaultfd`); 0 keeps none.
    REGISTERED_MAX = number(Bytes, 1_073_741_824, 0..=1_099_511_627_776);

    /// Short messages that are not waited for leave from the program's own buffers, where these are used so often that registering them pays by what was
    /// measured (`on`), from a buffer's second message on whatever that costs (`always`, for tests), or never (`off`; `WHIMBREL_VERBS=rc`,
    /// `WHIMBREL_REGISTERED_MAX` not 0).
    SEND_IN_PLACE = choice("on", ["on", "always", "off"]);

    /// Announce a long message before its memory is registered, and register it, and the memory of its receive, piece by piece while it is under way
    /// (`WHIMBREL_VERBS=rc`).
    OVERLAP_PINNING = switch(true);

    /// Interfaces or RDMA devices by name, or networks as address/length, with commas between: the addresses that may be used. Empty: all that are up.
    NET = text("");

    /// Sockets of each address, over which datagrams are striped.
    ENDPOINTS = number(Count, 1, 1..=4);

    /// What keeps foreign and damaged datagrams out: a keyed authenticator (`auth`), a checksum for networks that are trusted (`crc`), or
    /// authenticated encryption (`encrypt`).
    PROTECTION = choice("auth", ["auth", "crc", "encrypt"]);

    /// How long a rank that another launcher than ours has started waits in `MPI_Init` for all ranks to come there; one may have ended. 0: without end.
    START_TIMEOUT = number(Seconds, 600, 0..=86_400);

    /// A file with 64 hexadecimal digits that only its owner may read (`openssl rand -hex 32`), the same on all hosts: datagrams are then protected by it,
    /// and not only by the key that goes through the process manager.
    KEY_FILE = text("");

    /// Whether the job's key goes through another process manager than ours within a credential of munge, which only this user can decode: in jobs of Slurm,
    /// where munge answers on rank 0 (`auto`), always (`on`: else the job does not start), or never (`off`). All ranks take the same.
    KEY_MUNGE = choice("auto", ["auto", "on", "off"]);

    /// A process on another host that answers on no rail for this long has failed. One of this host that has ended is found out in that time too, where no
    /// launcher ends the job.
    PEER_TIMEOUT = number(Milliseconds, 20_000, 100..=3_600_000);

    /// Engines that communicators made under `MPI_THREAD_MULTIPLE` are spread over, so that threads on different ones do not wait for each other.
    VCIS = number(Count, 4, 1..=4);

    /// How long a rank that waits polls for messages before it gives its core away, where every rank has a core.
    SPIN = number(Microseconds, 100, 0..=1_000_000);

    /// How long a rank that waits gives its core away again and again before it sleeps; where ranks share cores, a hundred times at least.
    YIELD = number(Microseconds, 300, 0..=1_000_000);

    /// How long a rank waits in a collective before it asks the rank that it waits for whether both have called the same; later
    /// after twice as long each time. 0: it never asks.
    COLLECTIVE_CHECK = number(Milliseconds, 500, 0..=3_600_000);

    /// Short blocking collectives of ranks that share memory go through lines and slots there that all read. Off: all go by messages.
    /// All ranks take the same. `whimbrel info --collectives` lists what goes how.
    COLLECTIVE_SLOTS = switch(true);

    /// Algorithms by which collectives go instead of the chosen ones, wherever they apply: `bcast=binomial,allreduce=hosts`. Those named go by messages.
    /// All ranks take the same. `whimbrel info --collectives` lists them.
    ALGORITHMS = text("");

    /// Members of long blocking collectives on one host read what they need straight from each other's memory, where the system allows it (`WHIMBREL_SINGLE_COPY`).
    /// `auto`: from the length on from which timed copies say that it is faster; `always`: from 16 KiB on. All ranks take the same.
    COLLECTIVE_LENDING = choice("auto", ["auto", "always", "off"]);

    /// Reductions combine in an order that depends on the number of ranks alone: the same bits on any hosts, transports and with any lengths,
    /// and from all reductions of the same vectors. Costs time, most with long vectors between hosts. All ranks take the same.
    REPRODUCIBLE = switch(false);

    /// Error handler that communicators have at the start, and that errors meet before it (`mpiexec -initial-errhandler`).
    INITIAL_ERRHANDLER = choice("mpi_errors_are_fatal", ["mpi_errors_are_fatal", "mpi_errors_abort", "mpi_errors_return"]);

    /// Kinds of memory that the program asks for, with commas between (`mpiexec -memory-alloc-kinds`): `mpi`, `system`, and `mpi` with the
    /// restrictors alloc_mem, win_allocate, win_allocate_shared behind colons. Others are left out of what `mpi_memory_alloc_kinds` tells.
    MEMORY_ALLOC_KINDS = text("");

    /// Check the arguments of calls. Off, a wrong argument has no defined meaning.
    ARGUMENT_CHECKS = switch(true);

    /// Print a short backtrace of a rank that a signal such as SIGSEGV kills, unless the program handles that signal itself.
    BACKTRACE = switch(true);

    /// Print what the library did (messages by protocol and size, time waiting) when a program ends.
    REPORT = switch(false);

    /// Envelopes of each rank that the report lists with what became of the announcements of their receives, those with the most receives first.
    REPORT_ENVELOPES = number(Count, 0, 0..=1024);

    /// What a process does that another launcher than ours started: `join` its job, or run as a world of one (`ignore`).
    FOREIGN_LAUNCHER = choice("join", ["join", "ignore"]);

    /// PMIx's client library, loaded where a PMIx server has started the process.
    LIBPMIX = text("libpmix.so.2");

    /// How long ranks may clean up after the first SIGINT, SIGTERM or SIGHUP before mpiexec kills them.
    INTERRUPT_GRACE = number(Milliseconds, 5_000, 0..=3_600_000);

    /// How long the other ranks may go on when one rank has failed or aborted the job, so that what they are about to say of it is seen, before mpiexec
    /// sends SIGTERM. It ends earlier when all have ended.
    FAILURE_GRACE = number(Milliseconds, 250, 0..=60_000);

    /// How long the other ranks may clean up, after SIGTERM, when one rank has failed, before mpiexec kills them.
    ABORT_GRACE = number(Milliseconds, 250, 0..=60_000);

    /// How long mpiexec holds an unfinished line of output back, so that lines of several ranks do not mix.
    PARTIAL_LINE_WAIT = number(Milliseconds, 100, 0..=60_000);
}
