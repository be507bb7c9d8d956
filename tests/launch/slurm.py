#!/usr/bin/env python3
# timeout: 900
"""Programs under Slurm's srun: PMI-2, PMI-1 and PMIx. Slurm runs on this machine alone, in the test's scratch folder; its
packages are heavy, so that this runs where WHIMBREL_TEST_SCALE asks for slow tests, or as `make test-launch`."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from common import PREFIX, SCRATCH, build, expect, finish, lines, ranks, run, skip, suite

if int(os.environ.get("WHIMBREL_TEST_SCALE") or 1) < 2:
    skip("a slow test, and heavy packages: make test-launch")
tools = ["srun", "sinfo", "slurmctld", "slurmd", "munged"]
os.environ["PATH"] += ":/usr/sbin:/sbin"
missing = [tool for tool in tools if not shutil.which(tool)]
if missing:
    skip(f"missing: {', '.join(missing)} (Debian: slurm-wlm munge libpmix-dev)")
if os.geteuid() != 0:
    skip("slurmd must run as root")

daemons = []


@atexit.register
def stop():
    for daemon in reversed(daemons):
        daemon.send_signal(signal.SIGTERM)
    for daemon in reversed(daemons):
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def start(*command):
    log = (SCRATCH / f"{Path(command[0]).name}.log").open("wb")
    daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, ready):
    deadline = time.monotonic() + 60
    while not ready():
        if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in daemons):
            for log in sorted(SCRATCH.glob("*.log")):
                print(f"{log.name}:", *log.read_text(errors="replace").splitlines()[-15:], sep="\n  | ")
            print(f"{what} did not come up")
            raise SystemExit(1)
        time.sleep(0.2)


host = socket.gethostname().split(".")[0]
munge = SCRATCH / "munge.sock"
for name in ("spool", "state"):
    shutil.rmtree(SCRATCH / name, ignore_errors=True)
    (SCRATCH / name).mkdir()
key = SCRATCH / "munge.key"
key.write_bytes(os.urandom(1024))
key.chmod(0o600)
start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}", f"--pid-file={SCRATCH}/munged.pid",
      f"--log-file={SCRATCH}/munged.log", f"--seed-file={SCRATCH}/munge.seed")
wait_for("munged", munge.exists)

configuration = SCRATCH / "slurm.conf"
configuration.write_text(f"""
ClusterName=whimbrel
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={munge}
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmctldPidFile={SCRATCH}/slurmctld.pid
SlurmdPidFile={SCRATCH}/slurmd.pid
SlurmdSpoolDir={SCRATCH}/spool
StateSaveLocation={SCRATCH}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8
""")
os.environ["SLURM_CONF"] = str(configuration)
start("slurmctld", "-D", "-f", str(configuration))
start("slurmd", "-D", "-f", str(configuration))


def asked(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout


wait_for("the node", lambda: "idle" in asked("sinfo", "--noheader", "--format=%T"))

conf = {"SLURM_CONF": str(configuration)}
kinds = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, timeout=60, check=False)
kinds = (kinds.stdout + kinds.stderr).split()
for kind, name, extra in [("pmi2", "srun --mpi=pmi2", {}), ("pmi2", "srun --mpi=pmi2, PMI-1", {"PMI_VERSION": "1"}), ("pmix", "srun --mpi=pmix", {})]:
    if kind not in kinds:
        print(f"skip  {name}: this Slurm has no such plugin")
        continue
    command = ["srun", f"--mpi={kind}", "--overcommit", "--kill-on-bad-exit=1", "-n"]
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
