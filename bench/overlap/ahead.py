#!/usr/bin/env python3
"""What announcements cost that always come too late: `ahead.c`, with 10^5 messages of a tag each, and speculation `off` and `adaptive` in turns.

Prints the median time of a message, the ratio of `adaptive` to `off` over pairs of neighbouring runs, and the announcements of all runs.
Arguments: [pairs of runs (9)] [messages (100000)]. The library is that of build/, or of WHIMBREL_TEST_PREFIX.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PREFIX = Path(os.environ.get("WHIMBREL_TEST_PREFIX", HERE.parent.parent / "build"))
# Name, fabric, long messages among 100, bytes of a long one, room of the receives of short ones.
CASES = [
    ("one long message among short ones", "shm", 1, 200_000, 8),
    ("short messages into long receives", "shm", 0, 200_000, 200_000),
    ("long messages", "shm", 100, 200_000, 8),
    ("long datagram messages", "udp", 100, 200_000, 8),
]


def run(program, flag, case, speculation, messages):
    """The time of a message, µs, and the announcements that were sent."""
    _, fabric, longs, size, room = case
    more = {"WHIMBREL_FABRIC": fabric, "WHIMBREL_SPECULATION": speculation, "WHIMBREL_REPORT": "on"}
    command = [PREFIX / "bin/mpiexec", "-n", "2", program, flag, messages, longs, size, room]
    done = subprocess.run([str(word) for word in command], env={**os.environ, **more}, check=True, capture_output=True, text=True)
    announced = re.search(r"(\d+) receives were announced", done.stderr)
    return float(done.stdout.split()[0]), int(announced[1]) if announced else 0


def main():
    pairs, messages = (int(word) for word in (sys.argv[1:] + ["9", "100000"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as scratch:
        program, flag = Path(scratch, "ahead"), Path(scratch, "flag")
        subprocess.run([PREFIX / "bin/mpicc", "-O2", HERE / "ahead.c", "-o", program], check=True)
        for case in CASES:
            times, sent = {"off": [], "adaptive": []}, 0
            for pair in range(pairs):
                # Each goes first as often as the other.
                for speculation in sorted(times, reverse=pair % 2 == 0):
                    time, announced = run(program, flag, case, speculation, messages)
                    times[speculation].append(time)
                    sent += announced
            off, adaptive = (statistics.median(times[name]) for name in ("off", "adaptive"))
            ratios = sorted(a / o for a, o in zip(times["adaptive"], times["off"]))
            print(
                f"{case[0]:<36} {case[1]}: off {off:.3f} µs, adaptive {adaptive:.3f} µs a message; ratio of the medians {adaptive / off:.4f},"
                f" of the best {min(times['adaptive']) / min(times['off']):.4f}, of pairs {statistics.median(ratios):.4f}"
                f" ({ratios[0]:.4f} to {ratios[-1]:.4f}); {sent / pairs:.0f} of {messages} receives announced",
                flush=True,
            )


if __name__ == "__main__":
    main()
