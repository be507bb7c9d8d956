#!/usr/bin/env python3
# timeout: 600
"""Two jobs that connect (pair.c): of 2 and 3 ranks, of one rank each without a launcher, through shared memory within each job and over UDP only."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("ROOT", HERE.parents[1]))
PREFIX = Path(os.environ.get("WHIMBREL_TEST_PREFIX", ROOT / "build"))
SCRATCH = Path(os.environ.get("SCRATCH", ROOT / ".cache" / "dynamic"))
LIMIT_S = 150
PEER_TIMEOUT_MS = "10000"

failures = []


def build(name):
    SCRATCH.mkdir(parents=True, exist_ok=True)
    subprocess.run([PREFIX / "bin" / "mpicc", "-O1", "-g", HERE / f"{name}.c", "-o", SCRATCH / name], check=True)
    return SCRATCH / name


def command(ranks, *argv):
    launcher = [PREFIX / "bin" / "mpiexec", "--timeout", str(LIMIT_S), "-n", str(ranks)] if ranks > 0 else []
    return [str(word) for word in [*launcher, *argv]]


def pair(what, deed, accepting, connecting, fabric="auto", expected=(0, 0)):
    """`accepting` and `connecting` ranks; 0: a process without a launcher."""
    for old in SCRATCH.glob("port.*"):
        old.unlink()
    env = {**os.environ, "WHIMBREL_FABRIC": fabric, "WHIMBREL_PEER_TIMEOUT": PEER_TIMEOUT_MS}
    both = [(accepting, "accept"), (connecting, "connect")]
    jobs = [
        subprocess.Popen(command(ranks, PROGRAM, role, SCRATCH / "port", deed), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for ranks, role in both
    ]
    said = []
    for job in jobs:
        try:
            said.append(job.communicate(timeout=LIMIT_S + 10)[0])
        except subprocess.TimeoutExpired:
            job.kill()
            said.append("(hangs)\n" + job.communicate()[0])
    good = all(job.returncode == status or status is None and job.returncode != 0 for job, status in zip(jobs, expected))
    print(f"{what}: {'good' if good else 'FAILED'} {[job.returncode for job in jobs]}", flush=True)
    if not good:
        print("\n".join(said))
        failures.append(what)


PROGRAM = build("pair")
words = sys.argv[1:]
for name, *rest in [
    ("2 x 3 ranks", "talk", 2, 3),
    ("3 x 1 ranks", "talk", 3, 1),
    ("2 x 3 ranks over udp", "talk", 2, 3, "udp"),
    ("without a launcher", "talk", 0, 0),
    ("2 ranks and one without a launcher", "talk", 2, 0),
    ("two accepts", "twice", 2, 2),
    ("disconnected, one side ends", "leave", 2, 2),
    ("a rank of the other side is killed", "die", 2, 2, "auto", (0, None)),
]:
    if not words or any(word in name for word in words):
        pair(name, *rest)
sys.exit(1 if failures else 0)
