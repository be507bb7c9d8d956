"""A Slurm cluster of the test's own, in its scratch folder: one controller, and a daemon for each node."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from common import SCRATCH

TOOLS = ["srun", "sinfo", "slurmctld", "slurmd", "munged"]
LIMIT_S = 60


def missing():
    """Why Slurm cannot run here; empty where it can."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    tools = [tool for tool in TOOLS if not shutil.which(tool)]
    if tools:
        return f"missing: {', '.join(tools)} (Debian: slurm-wlm munge libpmix-dev)"
    # Root of a user namespace is not enough.
    if os.geteuid() != 0 or Path("/proc/self/uid_map").read_text().split()[2] != "4294967295":
        return "slurmd must run as root"
    return ""


class Cluster:
    """`nodes`: name, address, and the words that run a command there. `munge`: the place of munge's socket, in the scratch folder where none is given.
    `variables` is what its clients need."""

    def __init__(self, nodes, address="127.0.0.1", munge=None):
        self.daemons = []
        atexit.register(self.stop)
        munge, key = munge or SCRATCH / "munge.sock", SCRATCH / "munge.key"
        for name in ["state", *(f"{kind}-{name}" for name, _, _ in nodes for kind in ("spool", "tmp"))]:
            shutil.rmtree(SCRATCH / name, ignore_errors=True)
            (SCRATCH / name).mkdir()
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self.start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}", f"--pid-file={SCRATCH}/munged.pid",
                   f"--log-file={SCRATCH}/munged.log", f"--seed-file={SCRATCH}/munge.seed")
        self.wait_for("munged", munge.exists)
        # One daemon to a network can have a port of its own choice; two of one cannot have the same.
        ports = [free_port() for _ in range(2)]
        listed = "\n".join(f"NodeName={name} NodeAddr={where} CPUs={os.cpu_count()} State=UNKNOWN" for name, where, _ in nodes)
        configuration = SCRATCH / "slurm.conf"
        configuration.write_text(f"""
ClusterName=whimbrel
SlurmctldHost={socket.gethostname().split(".")[0]}({address})
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={munge}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={SCRATCH}/slurmctld.pid
SlurmdPidFile={SCRATCH}/slurmd-%n.pid
SlurmdSpoolDir={SCRATCH}/spool-%n
TmpFS={SCRATCH}/tmp-%n
StateSaveLocation={SCRATCH}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
{listed}
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8
""")
        os.environ["SLURM_CONF"] = str(configuration)
        self.variables = {"SLURM_CONF": str(configuration)}
        self.start("slurmctld", "-D", "-f", str(configuration))
        for name, _, enter in nodes:
            self.start("slurmd", "-D", "-N", name, "-f", str(configuration), enter=enter)
        self.wait_for("the nodes", lambda: asked("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * len(nodes))

    def start(self, *command, enter=()):
        log = SCRATCH / f"{Path(command[0]).name}-{len(self.daemons)}.log"
        self.daemons.append(subprocess.Popen([*enter, *command], stdin=subprocess.DEVNULL, stdout=log.open("wb"), stderr=subprocess.STDOUT))

    def wait_for(self, what, ready):
        deadline = time.monotonic() + LIMIT_S
        while not ready():
            if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in self.daemons):
                for log in sorted(SCRATCH.glob("*.log")):
                    print(f"{log.name}:", *log.read_text(errors="replace").splitlines()[-15:], sep="\n  | ")
                print(f"{what} did not come up")
                raise SystemExit(1)
            time.sleep(0.2)

    def kinds(self):
        """The kinds of PMI that this Slurm has."""
        listed = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return (listed.stdout + listed.stderr).split()

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []


def asked(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False).stdout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
