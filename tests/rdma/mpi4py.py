#!/usr/bin/env python3
# timeout: 3600
# long: a quarter of an hour
"""mpi4py's tests of point-to-point and collective communication over datagrams of a soft RoCE device, at 2 and 4 ranks, and those of point-to-point
communication over connections of a soft iWARP device."""

import subprocess

import guest

MODULES = ["p2p_buf", "p2p_obj", "p2p_buf_matched", "cco_buf", "cco_obj", "cco_nb_buf", "cco_vec"]

guest.need()
built = subprocess.run([guest.ROOT / "tests/abi/mpi4py.sh", "--prefix", guest.PREFIX, "--build"], capture_output=True, text=True)
last = (built.stdout.strip().splitlines() or ["mpi4py cannot be built"])[-1]
if built.returncode != 0:
    guest.skip(last)
tests = next((guest.ROOT / ".cache/mpi4py").glob("mpi4py-*/test"))
ways = [(MODULES, {}), (MODULES[:3], {"WHIMBREL_VERBS": "rc", "WHIMBREL_NET": "siw0"})]
for modules, way in ways:
    # Names as its runner takes them: whole modules.
    chosen = " ".join(f"-i 'test_{name}(\\.|$)'" for name in modules)
    for ranks in (2, 4):
        job = f"cd {tests} && export LD_LIBRARY_PATH={guest.PREFIX}/lib && mpiexec -n {ranks} {last} main.py -f {chosen}"
        output = guest.run(job, seconds=1700, **way)
        passed = output.count("OK")
        assert passed == ranks and "Ran 0 tests" not in output, output
        print(f"{ranks} ranks, {way or 'datagrams'}: {[line for line in output.splitlines() if line.startswith('Ran ')]}")
