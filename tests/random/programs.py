#!/usr/bin/env python3
# timeout: 900
"""programs.py [ROUNDS [SEED]]: random one-sided programs and random file accesses (tests/programs-c/win_random.c, file_random.c) with seeds of their own, from
1 to 6 ranks, over shared memory with and without copies between processes, with targets that do short calls, and over datagrams. A failure prints its command.
ROUNDS: 4, times the square of WHIMBREL_TEST_SCALE."""

import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("ROOT", HERE.parents[1]))
PREFIX = Path(os.environ.get("WHIMBREL_TEST_PREFIX", ROOT / "build"))
SCRATCH = Path(os.environ.get("SCRATCH", ROOT / ".cache" / "random"))
LIMIT_S = 120
WAYS = [{}, {"WHIMBREL_REQUEST_LINES": "always"}, {"WHIMBREL_SINGLE_COPY": "off"}, {"WHIMBREL_FABRIC": "udp"}]
PROGRAMS = ["win_random", "file_random"]

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else max(1, int(4 * float(os.environ.get("WHIMBREL_TEST_SCALE", "1")) ** 2))
first = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
SCRATCH.mkdir(parents=True, exist_ok=True)
for name in PROGRAMS:
    subprocess.run([PREFIX / "bin/mpicc", "-O1", "-g", ROOT / "tests/programs-c" / f"{name}.c", "-o", SCRATCH / name], check=True)
failures = 0
for seed in range(first, first + rounds):
    chance = random.Random(seed)
    for name in PROGRAMS:
        ranks, way = chance.randint(1, 6), chance.choice(WAYS)
        command = [str(PREFIX / "bin/mpiexec"), "-n", str(ranks), str(SCRATCH / name), str(seed)]
        try:
            ended = subprocess.run(command, env={**os.environ, **way, "TMPDIR": str(SCRATCH)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                   errors="replace", timeout=LIMIT_S, check=False)
            status, text = ended.returncode, ended.stdout + ended.stderr
        except subprocess.TimeoutExpired as late:
            status, text = f"none after {LIMIT_S} s", (late.stderr or b"").decode(errors="replace")
        if status != 0:
            failures += 1
            print(*(f"{key}={value}" for key, value in way.items()), shlex.join(command), f"\n  status {status}\n{text[-3000:]}", flush=True)
print(f"{rounds} rounds of {len(PROGRAMS)} programs, seeds from {first}: {failures} failed")
sys.exit(1 if failures else 0)
