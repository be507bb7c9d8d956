#!/usr/bin/env python3
# timeout: 3600
# variants: ud hybrid rc iwarp
# long: a quarter of an hour
"""mpi4py's tests of point-to-point and collective communication over a soft RoCE device, in datagrams, over connections and over both, at 4 ranks, and over
connections of a soft iWARP device."""

import subprocess
import sys

import guest

MODULES = ["p2p_buf", "p2p_obj", "p2p_buf_matched", "cco_buf", "cco_obj", "cco_nb_buf", "cco_vec"]

guest.need()
built = subprocess.run([guest.ROOT / "tests/abi/mpi4py.sh", "--prefix", guest.PREFIX, "--build"], capture_output=True, text=True)
last = (built.stdout.strip().splitlines() or ["mpi4py cannot be built"])[-1]
if built.returncode != 0:
    guest.skip(last)
tests = next((guest.ROOT / ".cache/mpi4py").glob("mpi4py-*/test"))
ways = {
    "ud": (MODULES, {"WHIMBREL_VERBS": "ud"}),
    "hybrid": (MODULES, {"WHIMBREL_VERBS": "hybrid", "WHIMBREL_VERBS_PRICE": "16"}),
    "rc": (MODULES, {"WHIMBREL_VERBS": "rc", "WHIMBREL_NET": "rxe0"}),
    "iwarp": (MODULES, {"WHIMBREL_VERBS": "rc", "WHIMBREL_NET": "siw0"}),
}
modules, way = ways[sys.argv[1]]
# Names as its runner takes them: whole modules.
chosen = " ".join(f"-i 'test_{name}(\\.|$)'" for name in modules)
for ranks in (2, 4) if sys.argv[1] == "ud" else (4,):
    job = f"cd {tests} && export LD_LIBRARY_PATH={guest.PREFIX}/lib && mpiexec -n {ranks} {last} main.py -f {chosen}"
    output = guest.run(job, seconds=1700, **way)
    passed = output.count("OK")
    assert passed == ranks and "Ran 0 tests" not in output, output
    print(f"{ranks} ranks, {way}: {[line for line in output.splitlines() if line.startswith('Ran ')]}")
