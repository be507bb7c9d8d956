#!/usr/bin/env python3
# timeout: 900
# long: the packages of Slurm are heavy
"""A rank ends under Slurm's srun that lets the others go on: as one_host.py."""

import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launch"))
import slurm_cluster  # noqa: E402
from common import finish, leave_out, skip  # noqa: E402

if reason := slurm_cluster.missing():
    skip(reason)

from one_host_common import go_on, meet  # noqa: E402

host = socket.gethostname().split(".")[0]
cluster = slurm_cluster.Cluster([(host, "127.0.0.1", ())])
for kind in ("pmi2", "pmix"):
    if kind not in cluster.kinds():
        leave_out(f"srun --mpi={kind}", "this Slurm has no such plugin")
        continue
    name = f"srun --mpi={kind}"
    launch = ["srun", f"--mpi={kind}", "--overcommit", "--kill-on-bad-exit=0", "--wait=0", "-n", "3"]
    # Slurm's plugin of PMIx ends the job itself when a rank goes that has not finalized.
    for where, how in [("receive", "kill"), ("allreduce", "exit"), ("finalize", "well")] if kind == "pmi2" else []:
        go_on(name, launch, where, how, cluster.variables)
    for where, how in [("before", "exit"), ("before", "kill")]:
        meet(name, launch, where, how, cluster.variables)
finish()
