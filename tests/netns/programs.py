#!/usr/bin/env python3
# timeout: 1800
"""The programs of tests/programs-c on two hosts of two ranks, or of one where a program wants two. WHIMBREL_TEST_SCALE: from 2 on the long ones, too.
`programs.py WORD…` runs those whose name has a word."""

import sys
import time

import netns
from common import build, expect, finish

# Longer than ten seconds.
LONG = ["comm_many", "idle", "large_counts"]
LIMIT_S = 300

netns.enter()
world = netns.World(2)
words = sys.argv[1:]
for program in netns.programs():
    if any(word in program.name for word in words) if words else netns.scale() >= 2 or program.name not in LONG:
        began = time.monotonic()
        status, text = world.run([*world.hydra(program.each), build(program.name, "programs-c"), *program.arguments], world.variables(), LIMIT_S)
        expect(f"{program.name}, 2 hosts of {program.each} ({time.monotonic() - began:.1f} s)", status == 0, text)
finish()
