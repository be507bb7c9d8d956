#!/usr/bin/env python3
# timeout: 600
"""Programs under MPICH's Hydra: PMI-1 over an inherited socket and over a port; ranks of several nodes."""

import os
import shutil

from common import build, expect, finish, leave_out, lines, ranks, run, suite, wheel

mpiexec = str(wheel("tests/abi/mpich") / "bin/mpiexec.hydra")

suite("hydra", [mpiexec, "-n"])
status, text = run([mpiexec, "-n", "2", build("spawn", "dynamic")])
expect("hydra: two ranks spawn others", status == 0, text)
where = build("where")
status, text = run([mpiexec, "-pmi-port", "-n", "3", where])
expect("hydra over a port", status == 0 and lines(text) == ranks(3), text)
status, text = run([mpiexec, "-n", "64", where])
expect("hydra: 64 ranks", status == 0 and lines(text) == ranks(64), text)

# Two nodes by the manager's word, and two network namespaces by the kernel's.
status, text = run([mpiexec, "-launcher", "fork", "-hosts", "localhost,127.0.0.1", "-n", "2", where])
expect("hydra: ranks of two nodes meet by datagrams", status == 0 and lines(text) == ranks(2, 1), text)
if os.geteuid() == 0 and shutil.which("unshare"):
    status, text = run([mpiexec, "-n", "2", where, ":", "-n", "1", "unshare", "--net", where])
    expect("hydra: a rank without a network says so", status not in (0, None) and "network interface" in text, text)
    os.environ["WHIMBREL_FABRIC"] = "shm"
    status, text = run([mpiexec, "-n", "2", where, ":", "-n", "1", "unshare", "--net", where])
    del os.environ["WHIMBREL_FABRIC"]
    told = [line for line in text.splitlines() if "does not reach" in line]
    expect("hydra: so do ranks that may not use one", status not in (0, None) and told, text)
    expect("hydra: the line names both hosts", all(line.count("host ") >= 2 and line.count("network namespace") == 2 for line in told), text)
else:
    leave_out("ranks without a network", "network namespaces need root and unshare")
finish()
