#!/usr/bin/env python3
# timeout: 900
# long: the packages of Slurm are heavy
"""Programs under Slurm's srun: PMI-2, PMI-1 and PMIx. Slurm runs on this machine alone."""

import socket

import slurm_cluster
from common import PREFIX, build, expect, finish, leave_out, lines, ranks, run, skip, suite

if reason := slurm_cluster.missing():
    skip(reason)
host = socket.gethostname().split(".")[0]
cluster = slurm_cluster.Cluster([(host, "127.0.0.1", ())])
conf = cluster.variables

kinds = cluster.kinds()
for kind, name, extra in [("pmi2", "srun --mpi=pmi2", {}), ("pmi2", "srun --mpi=pmi2, PMI-1", {"PMI_VERSION": "1"}), ("pmix", "srun --mpi=pmix", {})]:
    if kind not in kinds:
        leave_out(name, "this Slurm has no such plugin")
        continue
    command = ["srun", f"--mpi={kind}", "--overcommit", "--kill-on-bad-exit=1", "-n"]
    status, text = run([*command, "2", build("spawn", "dynamic")], {**conf, **extra})
    expect(f"{name}: two ranks spawn others", status == 0, text)
    if extra:
        status, text = run([*command, "4", build("where")], {**conf, **extra})
        expect(f"{name}: four ranks meet", status == 0 and lines(text) == ranks(4), text)
    else:
        suite(name, command, {**conf, **extra}, several=False, code=False)
mpiexec = str(PREFIX / "bin/mpiexec")
status, text = run([mpiexec, "--engine", "srun", "--hosts", host, "-n", "3", "-x", "A=1,2", build("where")], conf)
expect("mpiexec hands over to srun", status == 0 and lines(text) == ranks(3) and "handed over to Slurm's srun" in text, text)
status, text = run(["srun", "--mpi=none", "--overcommit", "-n", "2", build("where")], conf)
expect("srun --mpi=none: one clear line", status not in (0, None) and "srun without --mpi=pmi2" in text, text)
finish()
