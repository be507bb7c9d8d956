#!/usr/bin/env python3
# timeout: 1800
"""Short jobs beside processes that use every core: a wake-up that is lost is told from a process that gets no core.

Eight hogs run, each in a session of its own (and so in a scheduler's group of its own where there are any), and one job after the other of 2 and
4 ranks, over shared memory and over datagrams. All the time it is looked at what each thread of the job does. Where nobody of a job has run, and
nobody was waiting for a core, for longer than QUIET_S, somebody must have missed being woken: the test fails and prints where all were. A job that
takes longer than SLOW times the median of its kind is printed with what it spent that time on: running, waiting for a core, or asleep.

WHIMBREL_TEST_SCALE: 40 jobs times that. BUSY_RUNS, BUSY_HOGS override. BUSY_LOG names a file that gets a line for each job.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRATCH = Path(os.environ.get("SCRATCH", "/tmp"))
RUNS = int(os.environ.get("BUSY_RUNS", 0)) or round(40 * float(os.environ.get("WHIMBREL_TEST_SCALE", "1")))
HOGS = int(os.environ.get("BUSY_HOGS", "8"))
KINDS = [(ranks, fabric) for fabric in ("shm", "udp") for ranks in (2, 4)]
SAMPLE_S = 0.02
QUIET_S = 0.4
"""Nothing in the library sleeps for longer with nobody to wake it, but for the second after which a lost wake-up is made up for."""
LOOK_S = 0.1
"""Of the time between two looks so much counts at most: a machine that stands still as a whole lets nobody run either."""
SLOW = 10
LIMIT_S = 300


def main():
    program = SCRATCH / "busy"
    subprocess.run(["mpicc", "-O1", "-Wall", HERE / "busy.c", "-o", program], check=True)
    log = open(os.environ.get("BUSY_LOG", os.devnull), "a", buffering=1)
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(HOGS)]
    wrong, slow, times = 0, 0, {kind: [] for kind in KINDS}
    try:
        for run in range(RUNS):
            kind = KINDS[run % len(KINDS)]
            job = Job(program, *kind)
            job.watch()
            median = statistics.median(times[kind]) if times[kind] else job.seconds
            times[kind].append(job.seconds)
            lost, late = job.quiet_s > QUIET_S, job.seconds > SLOW * median
            line = f"run {run} {kind[1]} {kind[0]} ranks: {job.seconds:.2f} s, status {job.status}, quiet {job.quiet_s:.2f} s; {job.spent()}"
            print(line, file=log)
            slow += late
            if late:
                print(f"slow: {line}, median {median:.2f} s", flush=True)
            if lost or job.status != 0:
                wrong += 1
                print(f"WRONG: {line}", job.where, job.text, sep="\n", flush=True)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    for (ranks, fabric), all_s in times.items():
        if all_s:
            median = statistics.median(all_s)
            print(f"{fabric}, {ranks} ranks: {len(all_s)} jobs, median {median:.2f} s, slowest {max(all_s):.2f} s, {max(all_s) / median:.1f} times the median")
    print(f"{RUNS} jobs beside {HOGS} hogs, {slow} slower than {SLOW} times the median, {wrong} wrong; groups by session: {autogroup()}")
    sys.exit(1 if wrong else 0)


def autogroup():
    try:
        return Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip()
    except OSError:
        return "no"


class Job:
    def __init__(self, program, ranks, fabric):
        self.output = open(SCRATCH / "busy.out", "w+")
        environment = {**os.environ, "WHIMBREL_FABRIC": fabric}
        command = ["mpiexec", "--timeout", str(LIMIT_S), "-n", str(ranks), program]
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, env=environment, stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True)
        self.threads, self.quiet_s, self.where = {}, 0.0, ""

    def watch(self):
        """Looks at all threads until the job has ended; remembers the longest time in which none ran or wanted to."""
        before, last, quiet_s = None, 0.0, 0.0
        while self.process.poll() is None:
            now, ran, asleep, where = time.monotonic(), 0, True, []
            for pid in self.pids():
                for thread in listed(f"/proc/{pid}/task"):
                    seen = look(pid, thread)
                    if seen is None:
                        asleep = False
                        continue
                    name, state, run_ns, wait_ns, slices, wchan = seen
                    self.threads[pid, thread] = (name, run_ns, wait_ns)
                    ran += slices
                    asleep &= state == "S"
                    where.append(f"  {pid}/{thread} {name} {state} ran {run_ns / 1e6:.1f} ms, waited for a core {wait_ns / 1e6:.1f} ms, in {wchan}")
            quiet_s = quiet_s + min(now - last, LOOK_S) if asleep and ran == before else 0.0
            before, last = ran if asleep else None, now
            if quiet_s > self.quiet_s:
                self.quiet_s, self.where = quiet_s, "\n".join(where)
            time.sleep(SAMPLE_S)
        self.seconds = time.monotonic() - self.began
        self.status = self.process.returncode
        self.output.seek(0)
        self.text = self.output.read()
        self.output.close()

    def pids(self):
        """The launcher and its descendants."""
        found = [str(self.process.pid)]
        for pid in found:
            for thread in listed(f"/proc/{pid}/task"):
                try:
                    found += Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
                except OSError:
                    pass
        return found

    def spent(self):
        """What the busiest threads did."""
        all_s = sorted(((run_ns + wait_ns, name, run_ns, wait_ns) for name, run_ns, wait_ns in self.threads.values()), reverse=True)
        return ", ".join(f"{name} ran {run_ns / 1e9:.2f} s and waited {wait_ns / 1e9:.2f} s for a core" for _, name, run_ns, wait_ns in all_s[:4])


def listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def look(pid, thread):
    """Name, state, ns on a core and waiting for one, times that it ran, and where it sleeps. None where it has ended."""
    folder = f"/proc/{pid}/task/{thread}"
    try:
        with open(f"{folder}/stat") as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
        with open(f"{folder}/schedstat") as file:
            run_ns, wait_ns, slices = map(int, file.read().split())
        with open(f"{folder}/wchan") as file:
            wchan = file.read() or "?"
        return name, rest.split()[0], run_ns, wait_ns, slices, wchan
    except (OSError, ValueError):
        return None


if not Path("/proc/self/schedstat").exists():
    print("skip: this kernel does not count how long threads wait for a core")
    sys.exit(77)
if shutil.which("mpicc") is None:
    sys.exit("build/bin must be in PATH")
main()
