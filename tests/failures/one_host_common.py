"""A rank of one host ends: what one_host.py and one_host_srun.py ask of the others."""

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from common import SCRATCH, build, environment, expect

SILENCE_S, START_S = 2, 5
# What a busy machine may take besides.
MARGIN_S = 30
WHERE = ["receive", "any", "send", "test", "probe", "allreduce", "gather", "bcast", "barrier", "iallreduce", "ibcast", "persistent", "finalize",
         "window lock", "window ask", "window put", "window flush", "window sync", "window fence", "file write", "file read", "file iwrite",
         "lent allgather", "lent allreduce", "lent gather", "lent scatter", "lent reduce_scatter", "lent alltoall"]
# Hydra's own proxy sometimes crashes when a rank dies in the middle of PMI (1 in 200 runs); it says so in the words that it has for a
# program, but a signal of a rank never reaches it here: the shell around each rank exits with 0.
CRASHED = "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault"
TRIES = 5
LIMITS = {"WHIMBREL_PEER_TIMEOUT": f"{SILENCE_S}s", "WHIMBREL_START_TIMEOUT": f"{START_S}s"}

program = build("one_host", "failures")


def ranks_of(launcher):
    """Processes of the program that `launcher`, or one that it has started, has started and that have not ended."""
    parents, ranks = {}, []
    for entry in Path("/proc").iterdir():
        try:
            state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            if entry.name.isdigit() and state not in "ZX":
                parents[int(entry.name)] = int(parent)
                if os.readlink(entry / "exe") == os.path.realpath(program):
                    ranks.append(int(entry.name))
        except (OSError, IndexError):
            continue

    def below(process):
        while process not in (0, launcher):
            process = parents.get(process, 0)
        return process == launcher

    return [rank for rank in ranks if below(rank)]


def go(name, launch, where, how, stated_s, extra):
    """As `one`, again where the launcher itself has crashed."""
    for _ in range(TRIES):
        text = one(name, launch, where, how, stated_s, extra)
        if name != "Hydra" or CRASHED not in text:
            break
        print(f"again {name}, {where}, {how}: the launcher itself has crashed", flush=True)
    return text


def one(name, launch, where, how, stated_s, extra):
    """What a job printed until its ranks were over. A launcher may stay longer than they do: PRRTE sometimes does when it goes on without a rank."""
    began = time.monotonic()
    log = SCRATCH / "one_host.log"
    with log.open("w") as out:
        job = subprocess.Popen([*launch, program, where, how], env={**environment(), **LIMITS, **(extra or {})}, cwd=SCRATCH, stdin=subprocess.DEVNULL,
                               stdout=out, stderr=subprocess.STDOUT)
    over = lambda: job.poll() is not None or (seen and not ranks_of(job.pid))  # noqa: E731
    seen = False
    while not over() and time.monotonic() - began < stated_s + MARGIN_S:
        seen = seen or bool(ranks_of(job.pid))
        time.sleep(0.1)
    took_s, ended = time.monotonic() - began, over()
    left = ranks_of(job.pid)
    try:
        # What it has read of the ranks' words, it prints.
        job.wait(timeout=3)
    except subprocess.TimeoutExpired:
        # A launcher that stays without ranks does not heed SIGTERM either.
        job.kill()
        job.wait()
        for rank in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)
    text = log.read_text(errors="replace")
    # It is a limit, not a duration: the margin is for a machine that does other things.
    expect(f"{name}, {where}, {how}: over within {stated_s} s ({took_s:.1f} s)", ended, f"{text}\nstatus {job.returncode}")
    return text


def go_on(name, launch, where, how, extra=None):
    """A rank ends in or before the call `where`; the others find that out, and finalize."""
    # Seen twice, each half of the silence; and as long again to finalize.
    text = go(name, launch, where, how, 4 * SILENCE_S + 2, extra)
    expect(f"{name}, {where}, {how}: the others have finalized", sorted(re.findall(r"^rank (\d) has finalized$", text, re.M)) == ["0", "2"], text)


def meet(name, launch, where, how, extra=None):
    """A rank ends before all have met."""
    text = go(name, launch, where, how, START_S, extra)
    told = [line for line in text.splitlines() if "WHIMBREL_START_TIMEOUT" in line]
    expect(f"{name}, {where}, {how}: a line says which limit has passed", told, text)
