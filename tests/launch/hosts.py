#!/usr/bin/env python3
# timeout: 300
"""Ranks on two hosts, which are network namespaces joined by a bridge: the engines start their daemons there by an agent that
enters the namespace, as `ssh` would. Ranks of one of them meet in memory, those of both by datagrams."""

import atexit
import ctypes
import os
import shutil
import subprocess

from common import ROOT, SCRATCH, build, expect, finish, lines, ranks, run, skip, wheel

if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
    skip("network namespaces need root, ip (Debian: iproute2) and unshare")
# Names of this run alone; an interface's have at most 15 characters.
tag = f"wl{os.getpid() % 100000}"
net = f"10.{64 + os.getpid() % 64}.{os.getpid() % 250}"
hosts = [f"{net}.1", f"{net}.2"]


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


@atexit.register
def clean():
    for number in (1, 2):
        ip("netns", "del", f"{tag}-{number}", check=False)
    ip("link", "del", f"{tag}b", check=False)


if ip("link", "add", f"{tag}b", "type", "bridge", check=False).returncode != 0:
    skip("this system makes no bridges")
ip("addr", "add", f"{net}.254/24", "dev", f"{tag}b")
ip("link", "set", f"{tag}b", "up")
for number, host in enumerate(hosts, 1):
    space = f"{tag}-{number}"
    ip("netns", "add", space)
    ip("link", "add", f"{tag}v{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
    ip("link", "set", f"{tag}v{number}", "master", f"{tag}b", "up")
    ip("-n", space, "addr", "add", f"{host}/24", "dev", "eth0")
    ip("-n", space, "link", "set", "eth0", "up")
    ip("-n", space, "link", "set", "lo", "up")

agent = SCRATCH / "agent"
agent.write_text(f"""#!/bin/bash
while [ "${{1#-}}" != "$1" ]; do shift; done
space={tag}-${{1##*.}}
shift
exec ip netns exec "$space" unshare --uts bash -c "hostname $space; $*"
""")
agent.chmod(0o755)
where = build("where")

engines = {}
hydra = wheel("tests/abi/mpich") / "bin/mpiexec.hydra"
engines["hydra"] = ([hydra, "-iface", f"{tag}b", "-launcher", "ssh", "-launcher-exec", agent], "-hosts", {})
try:
    ctypes.CDLL("libpmix.so.2")
    home = subprocess.run([str(ROOT / "tests/launch/openmpi")], capture_output=True, text=True, check=True).stdout.strip()
    command = [f"{home}/bin/prterun", "--prefix", home, "--prtemca", "plm_ssh_agent", agent, "--prtemca", "prte_if_include", f"{net}.0/24",
               "-x", "LD_LIBRARY_PATH"]
    engines["prterun"] = (command, "--host", {"PRTE_PREFIX": home})
except (OSError, subprocess.CalledProcessError):
    print("skip  prterun: it cannot be had here, or libpmix.so.2 cannot")

for name, (command, option, extra) in engines.items():
    status, text = run([*map(str, command), option, f"{hosts[0]}:2", "-n", "2", where], extra)
    expect(f"{name}: two ranks of one host meet", status == 0 and lines(text) == ranks(2), text)
    status, text = run([*map(str, command), option, f"{hosts[0]}:2,{hosts[1]}:2", "-n", "4", where], extra)
    expect(f"{name}: ranks of two hosts meet", status == 0 and lines(text) == ranks(4, 2), text)
finish()
