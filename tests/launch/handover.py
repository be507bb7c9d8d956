#!/usr/bin/env python3
# timeout: 300
"""`mpiexec --hosts` becomes the engine that it finds, and says which."""

import ctypes
import os
import subprocess

from common import PREFIX, ROOT, SCRATCH, build, expect, finish, leave_out, lines, ranks, run, wheel

mpiexec = str(PREFIX / "bin/mpiexec")
where = build("where")
bare = {"PATH": str(PREFIX / "bin")}
status, text = run([mpiexec, "--hosts", "far.invalid,away.invalid", "-n", "2", where], bare)
said = text.strip().splitlines()
expect("without an engine: one clear line", status == 1 and len(said) == 1 and "prterun" in said[0] and "Hydra" in said[0], text)
status, text = run([mpiexec, "--hosts", "localhost:2", "-n", "2", where], bare)
expect("this machine alone needs none", status == 0 and lines(text) == ranks(2), text)

# By a name of its own alone, so that it is not taken for this library's mpiexec.
folder = SCRATCH / "engines"
folder.mkdir(exist_ok=True)
engines = {"hydra": wheel("tests/abi/mpich") / "bin/mpiexec.hydra"}
try:
    ctypes.CDLL("libpmix.so.2")
    found = subprocess.run([str(ROOT / "tests/launch/openmpi")], capture_output=True, text=True, check=True)
    engines["prterun"] = found.stdout.strip() + "/bin/prterun"
except OSError:
    leave_out("prterun", "there is no libpmix.so.2 (Debian: libpmix2)")
except subprocess.CalledProcessError:
    leave_out("prterun", "Open MPI's wheel cannot be installed")
for name, program in engines.items():
    path = {"PATH": f"{PREFIX / 'bin'}:{os.path.dirname(program)}:{os.environ['PATH']}"}
    words = [mpiexec, "--hosts", "localhost:2", "--engine", name, "-n", "2", "-x", "MARK=a b", where, ":", "-n", "1", where]
    status, text = run(words, path)
    told = [line for line in text.splitlines() if line.startswith("mpiexec: 3 ranks on localhost") and str(program) in line]
    expect(f"{name}: three ranks of two programs", status == 0 and lines(text) == ranks(3, programs=[0, 0, 1]), text)
    expect(f"{name}: is named", len(told) == 1, text)
    status, text = run([mpiexec, "--hosts", "localhost", "--engine", name, "-n", "2", "-x", "MARK=a b", "sh", "-c", "echo \"<$MARK>\""], path)
    expect(f"{name}: variables arrive", status == 0 and text.count("<a b>") == 2, text)
(SCRATCH / "hosts").write_text("# two\nfar.invalid slots=2\naway.invalid:1\n")
(folder / "mpiexec.hydra").write_text("#!/bin/sh\necho asked: \"$@\"\n")
(folder / "mpiexec.hydra").chmod(0o755)
status, text = run([mpiexec, "--hostfile", "hosts", "-n", "3", "prog", "a"], {"PATH": f"{PREFIX / 'bin'}:{folder}:/bin"})
expect("a file of hosts", status == 0 and "asked: -hosts far.invalid:2,away.invalid:1 -n 3 prog a" in text, text)
finish()
