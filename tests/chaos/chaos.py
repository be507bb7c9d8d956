#!/usr/bin/env python3
# timeout: 600
"""Kills ranks, or the launcher, at random moments, and looks at what is left.

Each run starts chaos.c on a few ranks and brings one kind of death over it. Then the job must end, with exactly one line
that names the rank and what it died of, and with a fitting exit status; no process of the job may survive, nor a file in
/dev/shm or the temporary folder, nor a socket in the abstract namespace.

CHAOS_RUNS (24) is the number of runs, CHAOS_SEED replays one series (a run's seed replays that run alone, with CHAOS_RUNS=1),
CHAOS_LIMIT_S (10) is how long after the death a job counts as hung. Times are reported, not asserted.
"""

import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("ROOT", HERE.parents[1]))
PREFIX = Path(os.environ.get("WHIMBREL_PREFIX", ROOT / "build"))
SCRATCH = Path(os.environ.get("SCRATCH", ROOT / ".cache" / "chaos"))
PROGRAM = SCRATCH / "chaos"

RUNS = int(os.environ.get("CHAOS_RUNS", "24"))
LIMIT_S = float(os.environ.get("CHAOS_LIMIT_S", "10"))
MARK = "WHIMBREL_TEST_CHAOS"
JOB, GUARD, RANK = "WHIMBREL_JOB", "WHIMBREL_GUARD", "WHIMBREL_RANK"
RUN_S = 15
"""A job that nothing has killed by then ends by itself, and the run counts as failed."""

OUTSIDE = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "segv-from-outside": signal.SIGSEGV}
"""Signals that this driver sends to a rank."""
INSIDE = {
    "segv": (r"was killed by signal 11 \(SIGSEGV\)", 128 + 11),
    "abrt": (r"was killed by signal 6 \(SIGABRT\)", 128 + 6),
    "exit": (r"exited with status 3 before MPI_Finalize", 3),
    "exit0": (r"exited with status 0 before MPI_Finalize", None),
    "leave": (r"exited with status 5 before MPI_Finalize", 5),
    "mpi-abort": (r"aborted the job with code 7", 7),
}
"""Deaths that the victim brings over itself: what is said of it, and the job's exit status (None: any but 0)."""
LAUNCHER = {"launcher-kill": signal.SIGKILL, "launcher-term": signal.SIGTERM, "launcher-int": signal.SIGINT}
MODES = ["kill"] * 8 + list(OUTSIDE)[1:] + list(INSIDE) + ["launcher-kill"] * 3 + list(LAUNCHER)[1:] + ["peace"]


class Wrong(Exception):
    pass


def environment_of(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def processes(mark: str, jobs: set[str]) -> dict[int, dict[str, str]]:
    """Live processes of the run: those that carry its mark, and guardians of its jobs, whose environment is their own."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            environment = environment_of(pid)
            if (environment.get(MARK) == mark or environment.get(GUARD) in jobs) and is_alive(pid):
                found[pid] = environment
    return found


def ranks_of(found: dict[int, dict[str, str]]) -> dict[int, int]:
    """Rank to pid, of those that have come as far as being the program."""
    ranks = {}
    for pid, environment in found.items():
        try:
            if RANK in environment and os.readlink(f"/proc/{pid}/exe") == str(PROGRAM.resolve()):
                ranks[int(environment[RANK])] = pid
        except OSError:
            continue
    return ranks


def abstract_sockets(jobs: set[str]) -> list[str]:
    lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    return [line for line in lines if any("@" + job in line for job in jobs)]


def shared_memory() -> set[str]:
    """Names in /dev/shm, without those that other MPI libraries at work beside this test leave there."""
    foreign = re.compile(r"mpich_|vader_|sm_segment|PMIX|pmix|ucx|psm|efa|btl_")
    return {entry.name for entry in Path("/dev/shm").iterdir() if not foreign.search(entry.name)}


def wait_until(condition, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


def kill_all(mark: str, jobs: set[str]) -> None:
    deadline = time.monotonic() + 10
    while (found := processes(mark, jobs)) and time.monotonic() < deadline:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def check_words(words: str, victim: int | None, errors: str) -> None:
    """One line on standard error, and it names the victim and its end."""
    lines = [line for line in errors.splitlines() if line.strip()]
    if len(lines) != 1:
        raise Wrong(f"{len(lines)} lines on standard error instead of one")
    if not re.match(rf"mpiexec: rank {victim}\b.* {words}", lines[0]):
        raise Wrong(f"the line does not say that rank {victim} {words}")


def one_run(seed: int) -> tuple[str, float | None]:
    """What was done, and the seconds from the death to the end of the launcher."""
    dice = random.Random(seed)
    mode = dice.choice(MODES)
    size = dice.choice([1, 2, 2, 3, 4, 4, 6, 9])
    victim = dice.randrange(size)
    # Some die while they start, most in the middle.
    after_s = dice.choice([dice.uniform(0, 0.05), dice.uniform(0, 0.6)])
    what = f"{mode}, rank {victim} of {size}, after {after_s * 1000:.1f} ms"
    mark = uuid.uuid4().hex
    jobs: set[str] = set()
    seconds = 0.3 if mode == "peace" else RUN_S
    command = [str(PREFIX / "bin" / "mpiexec"), "-n", str(size), str(PROGRAM), str(seed % 1000003), str(seconds)]
    if mode in INSIDE:
        command += [mode, str(victim), str(int(after_s * 1e6))]
    before = shared_memory()
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # The calls that led to a crash are other tests' matter: here each end is one line.
            env={**os.environ, MARK: mark, "TMPDIR": temporary, "WHIMBREL_BACKTRACE": "off"},
            start_new_session=True,
        )

        def text() -> str:
            errors.seek(0)
            return errors.read().decode(errors="replace")

        try:
            death = bring_death(mode, victim, after_s, size, child, mark, jobs)
            try:
                status = child.wait(LIMIT_S if mode not in INSIDE and mode != "peace" else LIMIT_S + RUN_S)
            except subprocess.TimeoutExpired:
                raise Wrong(f"hung: mpiexec still runs {LIMIT_S:g} s after the death") from None
            took_s = time.monotonic() - death if death else None
            if not wait_until(lambda: not processes(mark, jobs), LIMIT_S):
                left = [f"{pid} {' '.join(Path(f'/proc/{pid}/cmdline').read_text().split(chr(0)))}"
                        for pid in processes(mark, jobs)]
                raise Wrong(f"processes survive: {left}")
            if death and mode == "launcher-kill":
                took_s = time.monotonic() - death
            check_end(mode, victim, size, status, text())
            check_leftovers(before, jobs, Path(temporary))
        except Wrong as error:
            raise Wrong(f"{what}: {error}\nexit status {child.poll()}, standard error:\n{text()}") from None
        finally:
            kill_all(mark, jobs)
            if child.poll() is None:
                child.kill()
            child.wait()
    return what, took_s


def bring_death(mode: str, victim: int, after_s: float, size: int, child: subprocess.Popen, mark: str,
                jobs: set[str]) -> float | None:
    """Waits, kills if it is for the driver to kill, and gives the moment; notes the job's name on the way."""
    start = time.monotonic()
    whole = mode in OUTSIDE or mode in INSIDE or mode == "peace"
    ranks: dict[int, int] = {}

    def started() -> bool:
        found = processes(mark, jobs)
        jobs.update(environment[JOB] for environment in found.values() if JOB in environment)
        ranks.update(ranks_of(found))
        return (victim in ranks if whole else bool(ranks)) or child.poll() is not None

    if not wait_until(started, LIMIT_S):
        raise Wrong(f"rank {victim} did not start")
    if mode in INSIDE or mode == "peace":
        return None
    time.sleep(max(0.0, after_s - (time.monotonic() - start)))
    if child.poll() is not None:
        raise Wrong("the job ended before anything was killed")
    os.kill(ranks[victim] if mode in OUTSIDE else child.pid, OUTSIDE.get(mode) or LAUNCHER[mode])
    return time.monotonic()


def check_end(mode: str, victim: int, size: int, status: int, errors: str) -> None:
    if mode == "peace":
        if status != 0 or errors:
            raise Wrong("a job that nobody killed did not end well")
    elif mode == "exit0" and size == 1:
        # Nobody waits for it: the job ends as the rank did, with a warning.
        if errors != f"mpiexec: warning: rank {victim} exited with status 0 without calling MPI_Finalize\n":
            raise Wrong("the one line is not the warning that the rank never called MPI_Finalize")
        if status != 0:
            raise Wrong(f"exit status {status} instead of 0")
    elif mode in OUTSIDE:
        number = OUTSIDE[mode]
        check_words(rf"was killed by signal {number.value} \({number.name}\)", victim, errors)
        if status != 128 + number:
            raise Wrong(f"exit status {status} instead of {128 + number}")
    elif mode in INSIDE:
        words, expected = INSIDE[mode]
        check_words(words, victim, errors)
        if status == 0 or expected not in (None, status):
            raise Wrong(f"exit status {status} instead of {expected or 'another than 0'}")
    elif status == 0:
        raise Wrong("exit status 0 of a killed launcher")


def check_leftovers(before: set[str], jobs: set[str], temporary: Path) -> None:
    if left := list(temporary.iterdir()):
        raise Wrong(f"files left in the temporary folder: {left}")
    if not wait_until(lambda: not shared_memory() - before, 2):
        raise Wrong(f"left in /dev/shm: {shared_memory() - before}")
    if not wait_until(lambda: not abstract_sockets(jobs), 2):
        raise Wrong(f"sockets left: {abstract_sockets(jobs)}")


def main() -> int:
    # A shell that runs this in the background has had them ignored, and the launcher would inherit that.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    build = [str(PREFIX / "bin" / "mpicc"), "-O1", "-g", str(HERE / "chaos.c"), "-o", str(PROGRAM)]
    subprocess.run(build, check=True)
    first = int(os.environ.get("CHAOS_SEED") or random.randrange(1 << 40))
    print(f"CHAOS_SEED={first} CHAOS_RUNS={RUNS}", flush=True)
    times_s, failed = [], []
    for seed in range(first, first + RUNS):
        try:
            what, took_s = one_run(seed)
            times_s += [took_s] if took_s is not None else []
            after = f": over in {took_s * 1000:.0f} ms" if took_s is not None else ""
            print(f"ok    {seed}: {what}{after}", flush=True)
        except Wrong as error:
            failed.append(seed)
            print(f"FAIL  {seed}: {error}", flush=True)
    if times_s:
        slow = sum(took_s > 1 for took_s in times_s)
        print(f"from death to the end: median {statistics.median(times_s) * 1000:.0f} ms, "
              f"longest {max(times_s) * 1000:.0f} ms, {slow} of {len(times_s)} over a second")
    print(f"{RUNS - len(failed)} passed, {len(failed)} failed" + "".join(f"; CHAOS_SEED={seed}" for seed in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
