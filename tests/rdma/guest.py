"""What the tests on soft RDMA devices share: a guest with such devices, in which they run what was built outside.

    output = guest.run("mpiexec -n 2 build/program", seconds=60)
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("ROOT", HERE.parents[1]))
PREFIX = Path(os.environ.get("WHIMBREL_TEST_PREFIX", ROOT / "build"))
SCRATCH = Path(os.environ.get("SCRATCH", ROOT / ".cache/tests/rdma"))
SKIPPED = 77
NEEDED = {"rdma": "iproute2", "ip": "iproute2", "nft": "nftables", "busybox": "busybox-static", "ibv_devinfo": "ibverbs-utils"}
# What the library opens, and what opens a device's provider.
LIBRARIES = {"libibverbs.so.1": "libibverbs1", "librdmacm.so.1": "librdmacm1"}
PROVIDERS = Path("/etc/libibverbs.d")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def need(tools=()):
    """Ends the test as skipped where there is no guest, or what it would run in it is not installed."""
    kernel = subprocess.run([HERE / "kernel"], capture_output=True, text=True)
    if kernel.returncode != 0:
        skip((kernel.stdout.strip().splitlines() or ["no kernel for the guest"])[-1].removeprefix("skipped: "))
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = {package for tool, package in {**NEEDED, **dict(tools)}.items() if not shutil.which(tool, path=path)}
    known = subprocess.run([shutil.which("ldconfig", path=path) or "ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    missing |= {package for library, package in LIBRARIES.items() if f"\t{library} " not in known}
    missing |= set() if PROVIDERS.is_dir() else {"ibverbs-providers"}
    missing = sorted(missing)
    if missing:
        skip(f"missing: {', '.join(missing)}")


def compile_program(path, *flags):
    SCRATCH.mkdir(parents=True, exist_ok=True)
    binary = SCRATCH / Path(path).stem
    subprocess.run([PREFIX / "bin/mpicc", "-O1", "-Wall", "-Wextra", "-Werror", *flags, path, "-o", binary, "-lm"], check=True)
    return binary


def outcome(command, devices="one", seconds=200, **environment):
    """Exit status of a line of shell in the guest, and what it printed."""
    words = {"WHIMBREL_FABRIC": "verbs", **environment}
    exports = " ".join(f"{name}={value}" for name, value in words.items())
    line = f"export PATH={PREFIX}/bin:$PATH {exports}; {command}"
    done = subprocess.run([HERE / "guest", "-t", str(seconds), "-d", devices, "--", line], capture_output=True, text=True, errors="replace")
    if done.returncode == 125:
        print(done.stdout + done.stderr)
        skip("the guest does not start here")
    return done.returncode, done.stdout + done.stderr


def run(command, devices="one", seconds=200, **environment):
    """What a line of shell prints in the guest; it must end well."""
    status, output = outcome(command, devices, seconds, **environment)
    assert status == 0, f"{command}: exit status {status}\n{output}"
    return output


def hydra(each, program):
    """A line of shell that runs a program on both hosts of `two`, so many ranks on each, under MPICH's launcher: ours stays within one host."""
    found = subprocess.run([ROOT / "tests/abi/mpich"], capture_output=True, text=True)
    if found.returncode != 0:
        skip((found.stdout.strip().splitlines() or ["MPICH's wheel cannot be installed"])[-1])
    launcher = f"{found.stdout.strip()}/bin/mpiexec.hydra -iface ma -launcher ssh -launcher-exec {HERE}/on_host"
    return f"ip netns exec Na {launcher} -hosts 10.97.0.1:{each},10.97.0.2:{each} -n {2 * each} {program}"
