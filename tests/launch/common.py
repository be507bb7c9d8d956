"""What the tests of the launchers share: programs, and what every engine must be able to do with them."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ.get("ROOT", Path(__file__).resolve().parents[2]))
PREFIX = Path(os.environ.get("WHIMBREL_TEST_PREFIX", ROOT / "build"))
SCRATCH = Path(os.environ.get("SCRATCH", "/tmp"))
LIMIT_S = 120
# Programs of tests/programs-c that between them use every way a message takes, and all kinds of communicators.
SAMPLES = ["p2p_sizes", "p2p_random", "coll_values", "comm_inter", "wait_asleep"]
SKIPPED = 77

failures = []


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def leave_out(part, reason):
    """Reports a part of a test that is skipped, in the form that tests/run counts."""
    print(f"skip  {part}: {reason}", flush=True)


def wheel(script):
    """The folder that a script of ours installs a wheel into."""
    found = subprocess.run([str(ROOT / script)], capture_output=True, text=True)
    if found.returncode != 0:
        skip((found.stdout.strip().splitlines() or [f"{script} failed"])[-1])
    return Path(found.stdout.strip())


def build(name, folder="launch"):
    binary = SCRATCH / name
    compiler = [str(PREFIX / "bin/mpicc"), "-O1", "-Wall", str(ROOT / "tests" / folder / f"{name}.c"), "-o", str(binary), "-lm"]
    subprocess.run(compiler, check=True)
    return str(binary)


def python():
    """A Python with mpi4py built against this prefix, built first where it is missing; None where it cannot be had."""
    made = subprocess.run([str(ROOT / "tests/abi/mpi4py.sh"), "--prefix", str(PREFIX), "--build"], capture_output=True, text=True, check=False)
    return made.stdout.strip().splitlines()[-1] if made.returncode == 0 else None


def environment():
    """As a user's shell, without what the test's own launcher left there."""
    kept = {name: value for name, value in os.environ.items() if not re.match(r"(PMI|PMIX|SLURM|WHIMBREL_(JOB|KEY|NETWORK|RANK|SIZE)$)", name)}
    kept["LD_LIBRARY_PATH"] = str(PREFIX / "lib")
    # Open MPI's prterun wants to be asked before it runs as root.
    return {**kept, "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(command, extra=None):
    """Exit status (None: too long) and all that was printed."""
    try:
        done = subprocess.run(command, env={**environment(), **(extra or {})}, cwd=SCRATCH, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT_S)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")


def expect(what, good, text):
    print(f"{'ok   ' if good else 'FAIL '} {what}", flush=True)
    if not good:
        failures.append(what)
        print("\n".join("      | " + line for line in text.splitlines()[-40:]), flush=True)


def ranks(count, local=None, programs=None):
    """The lines that `where` prints on `count` ranks."""
    programs = programs or [0] * count
    return sorted(f"rank {rank} of {count}, {local or count} here, program {programs[rank]}, universe good" for rank in range(count))


def lines(text):
    return sorted(line for line in text.splitlines() if line.startswith("rank "))


def suite(name, launch, extra=None, several=True, code=True):
    """What every engine must do. `launch` is its command up to the number of ranks; `several`: it starts several programs by
    colons; `code`: the job's exit status is what MPI_Abort was given."""
    def go(count, *words):
        return run([*launch, str(count), *words], extra)

    where = build("where")
    status, text = go(4, where)
    expect(f"{name}: four ranks meet", status == 0 and lines(text) == ranks(4), text)
    status, text = go(1, where)
    expect(f"{name}: one rank", status == 0 and lines(text) == ranks(1), text)
    if several:
        status, text = go(2, where, ":", launch[-1], "1", where)
        expect(f"{name}: two programs", status == 0 and lines(text) == ranks(3, programs=[0, 0, 1]), text)
    status, text = go(2, where, "twice")
    expect(f"{name}: sessions, one after the other", status == 0 and text.count("done twice") == 2, text)
    status, text = go(3, where, "abort")
    expect(f"{name}: MPI_Abort ends the job", (status == 7 if code else status not in (0, None)) and "MPI_Abort" in text, text)
    status, text = go(3, where, "die")
    expect(f"{name}: a rank that dies ends the job", status not in (0, None), text)
    status, text = go(3, where, "leave")
    expect(f"{name}: a status after MPI_Finalize counts", status not in (0, None) and lines(text) == ranks(3), text)
    for sample in SAMPLES:
        count = re.search(r"ranks:.*\b(\d+)", (ROOT / "tests/programs-c" / f"{sample}.c").read_text())[1]
        status, text = go(count, build(sample, "programs-c"))
        expect(f"{name}: {sample}", status == 0, text)
    if interpreter := python():
        status, text = go(4, interpreter, "-m", "mpi4py.bench", "ringtest", "--loop", "100")
        expect(f"{name}: mpi4py's ringtest", status == 0 and "4 processes" in text, text)
    else:
        leave_out(f"{name}, mpi4py's ringtest", "mpi4py cannot be had here")


def finish():
    if failures:
        print(f"{len(failures)} failed")
        sys.exit(1)
    print("all passed")
