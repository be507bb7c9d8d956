#!/usr/bin/env python3
# timeout: 3600
"""Collectives that do not match: every pair of collectives, and roots, counts, operations and datatypes that differ, at 2, 3, 4 and 8 ranks,
with blocks of 4 B and 1 MiB, through shared memory and over UDP. In each cell (mismatch.c) some rank must get an error that names both calls and the
rank that called the other one, and no rank may wait for ever. Then jobs whose errors are fatal: they must end with a line that names both.

WHIMBREL_TEST_SCALE: 1 every 40th cell, 2 every 10th, from 4 on all. `mismatch.py RANKS BYTES FABRIC` runs all cells of one configuration."""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("ROOT", HERE.parents[1]))
PREFIX = Path(os.environ.get("WHIMBREL_TEST_PREFIX", ROOT / "build"))
SCRATCH = Path(os.environ.get("SCRATCH", ROOT / ".cache" / "mistakes"))
SCALE = float(os.environ.get("WHIMBREL_TEST_SCALE") or 1)
STEP = 40 if SCALE < 2 else 10 if SCALE < 4 else 1
LIMIT_S = 1500
"""A job of cells that takes longer hangs."""
FATAL_LIMIT_S = 60

FATAL = [
    # Program, ranks, and what the one line must name.
    ("barrier_finalize", 2, ["MPI_Barrier", "MPI_Finalize"]),
    ("barrier_finalize", 3, ["MPI_Barrier", "MPI_Finalize"]),
    ("barrier_allreduce", 2, ["MPI_Barrier", "MPI_Allreduce(count=1, MPI_INT, MPI_SUM)"]),
    ("bcast_barrier", 2, ["MPI_Bcast(count=1, MPI_INT, root=0)", "MPI_Barrier"]),
    ("counts", 3, ["MPI_Allreduce(count=1, MPI_INT, MPI_SUM)", "MPI_Allreduce(count=10, MPI_INT, MPI_SUM)"]),
    ("gather_lengths", 2, ["sent 40 bytes where 20 were expected"]),
]

failures = []


def build(name):
    SCRATCH.mkdir(parents=True, exist_ok=True)
    subprocess.run([PREFIX / "bin" / "mpicc", "-O1", "-g", HERE / f"{name}.c", "-o", SCRATCH / name], check=True)
    return SCRATCH / name


def run(argv, ranks, fabric, limit_s, **extra):
    env = {**os.environ, "WHIMBREL_FABRIC": fabric, **extra}
    command = [PREFIX / "bin" / "mpiexec", "--timeout", str(limit_s), "-n", str(ranks), *argv]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    return done.returncode, done.stdout, done.stderr


def judge(what, good, told):
    print(f"{what}: {told if good else 'FAILED: ' + told}", flush=True)
    if not good:
        failures.append(what)


def matrix(program, ranks, size, fabric, part, step):
    # Nothing is to be learned from longer pauses.
    status, out, err = run([program, size, part, step], ranks, fabric, LIMIT_S, WHIMBREL_COLLECTIVE_CHECK="50")
    last = re.findall(r"^cell \d+$", err, re.M)[-1:]
    good = status == 0 and re.search(r"^[1-9]\d* cells, 0 bad$", out, re.M)
    told = out.strip() if good else f"status {status}, last {last}\n{out[-4000:]}\n{err[-1000:]}"
    judge(f"{ranks} ranks, {size} bytes, {fabric}", good, told)


def main():
    cells = build("mismatch")
    if len(sys.argv) == 4:
        matrix(cells, *sys.argv[1:], "0", "1")
    else:
        fatal = build("fatal")
        for fabric in ("auto", "udp"):
            for name, ranks, words in FATAL:
                status, out, err = run([fatal, name], ranks, fabric, FATAL_LIMIT_S)
                good = status not in (0, 124) and all(word in err for word in words)
                judge(f"fatal {name}, {ranks} ranks, {fabric}", good, err.strip() if good else f"status {status}\n{out}{err}")
        part = 0
        for ranks in (2, 3, 4, 8):
            for size in ("4", str(1 << 20)):
                for fabric in ("auto", "udp"):
                    part += 1
                    matrix(cells, ranks, size, fabric, str(part % STEP), str(STEP))
    print(f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


main()
