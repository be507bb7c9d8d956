#!/usr/bin/env python3
# timeout: 900
"""killed.py [ROUNDS [SEED]]: parents that have spawned workers (killed.c), of which one process is killed at a random moment: a worker, a parent, the root of
the spawning, or one of the two launchers. The rest ends in a stated time, and leaves no process and no file behind. ROUNDS: 10, times WHIMBREL_TEST_SCALE (100: 1,000 rounds); at the end stands what a
round took."""

import collections
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("ROOT", HERE.parents[1]))
PREFIX = Path(os.environ.get("WHIMBREL_TEST_PREFIX", ROOT / "build"))
SCRATCH = Path(os.environ.get("SCRATCH", ROOT / ".cache" / "dynamic"))
MARK = "WHIMBREL_KILLED_ROUND"
PEER_TIMEOUT_S = 5
# What a busy machine may take besides.
LIMIT_S = PEER_TIMEOUT_S + 60
VICTIMS = ["worker", "other parent", "root", "outer mpiexec", "inner mpiexec"]


def processes(mark):
    """Number, command and state of each process that carries the mark."""
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")[:-1]
            except OSError:
                pass


def rank_of(pid):
    for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if word.startswith(b"WHIMBREL_RANK="):
            return int(word.split(b"=")[1])
    return None


def find(victim, mark, outer):
    """The process to kill, or None while it is not there."""
    if victim == "outer mpiexec":
        return outer.pid
    for pid, words in processes(mark):
        program = Path(os.fsdecode(words[0])).name if words else ""
        if victim == "inner mpiexec":
            if b"--spawned" in words:
                return pid
        elif program == "killed":
            try:
                role = "worker" if b"child" in words else "root" if rank_of(pid) == 0 else "other parent"
            except OSError:
                continue
            if role == victim:
                return pid
    return None


def shared_files():
    """Files with a name of this library in shared memory: there should be none ever."""
    return {path.name for path in Path("/dev/shm").iterdir() if "whimbrel" in path.name}


def await_(what, limit_s):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.002)
    return None


def play(number, chance):
    mark, victim = uuid.uuid4().hex, VICTIMS[number % len(VICTIMS)]
    folder = SCRATCH / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    before = shared_files()
    env = {**os.environ, MARK: mark, "WHIMBREL_PEER_TIMEOUT": f"{PEER_TIMEOUT_S}s", "TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    command = [PREFIX / "bin" / "mpiexec", "-n", "2", PROGRAM]
    log = open(SCRATCH / "log", "wb")
    outer = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    pid = await_(lambda: find(victim, mark, outer), LIMIT_S)
    if pid is None:
        return f"no {victim} came"
    delay_s = chance.choice([0, 0.05, 0.4]) * chance.random()
    time.sleep(delay_s)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return f"the {victim} ended before"
    start = time.monotonic()
    try:
        status = outer.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        status = None
    gone = await_(lambda: not list(processes(mark)), LIMIT_S)
    longest[victim] = max(longest[victim], time.monotonic() - start)
    left = list(processes(mark)) if not gone else []
    for one, _ in left:
        os.kill(one, signal.SIGKILL)
    outer.wait()
    files = [str(path) for path in folder.rglob("*") if not path.is_dir()] + sorted(shared_files() - before)
    wrong = []
    if status is None:
        wrong.append("mpiexec does not end")
    elif status == 0:
        wrong.append("mpiexec ends with status 0")
    if left:
        wrong.append(f"left behind: {left}")
    if files:
        wrong.append(f"left behind: {files}")
    return f"{victim} killed after {delay_s * 1000:.0f} ms: {'; '.join(wrong)}" if wrong else None


rounds = int(sys.argv[1]) if len(sys.argv) > 1 else max(1, int(10 * float(os.environ.get("WHIMBREL_TEST_SCALE", "1"))))
seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
SCRATCH.mkdir(parents=True, exist_ok=True)
PROGRAM = SCRATCH / "killed"
subprocess.run([PREFIX / "bin" / "mpicc", "-O1", "-g", HERE / "killed.c", "-o", PROGRAM], check=True)
longest = collections.Counter()
failures, began = 0, time.monotonic()
for number in range(rounds):
    wrong = play(number, random.Random(seed + number))
    if wrong:
        failures += 1
        print(f"round {number}, seed {seed}: {wrong}\n{(SCRATCH / 'log').read_text(errors='replace')[-3000:]}", flush=True)
slowest = ", ".join(f"{victim} {longest[victim]:.1f} s" for victim in VICTIMS)
each_s = (time.monotonic() - began) / rounds
print(f"{rounds} rounds of {each_s:.1f} s, seed {seed}: {failures} failed; the slowest end of all after the kill of: {slowest}")
sys.exit(1 if failures else 0)
