//! The table of all configuration. A row's comment is its meaning, as users see it.
//!
//! `NAME = switch(default)`, `number(unit, default, least..=most)`, `choice(default, [all])` or `text(default)`; users
//! set it as `WHIMBREL_NAME`, or as `name = value` in the configuration file.

crate::table! {
    /// Print what the library did (messages by protocol and size, time waiting) when a program ends.
    REPORT = switch(false);

    /// What a process does that another MPI's launcher started: `refuse` to run, or run as a world of one (`ignore`).
    FOREIGN_LAUNCHER = choice("refuse", ["refuse", "ignore"]);

    /// How long ranks may clean up after the first SIGINT, SIGTERM or SIGHUP before mpiexec kills them.
    INTERRUPT_GRACE = number(Milliseconds, 5_000, 0..=3_600_000);

    /// How long the other ranks may clean up, after SIGTERM, when one rank has failed, before mpiexec kills them.
    ABORT_GRACE = number(Milliseconds, 250, 0..=60_000);

    /// How long mpiexec holds an unfinished line of output back, so that lines of several ranks do not mix.
    PARTIAL_LINE_WAIT = number(Milliseconds, 100, 0..=60_000);
}
