#!/usr/bin/env python3
# timeout: 900
"""The unit tests of the device itself, which want one: messages as datagrams and over connections, what fails, and wake-ups."""

import json
import os
import re
import subprocess

import guest

guest.need()
words = [os.environ.get("CARGO", "cargo"), "test", "--quiet", "--package", "whimbrel-fabric", "--package", "whimbrel-cli", "--lib", "--no-run", "--message-format=json"]
built = subprocess.run(words, cwd=guest.ROOT, check=True, stdout=subprocess.PIPE, text=True)
messages = [json.loads(line) for line in built.stdout.splitlines() if '"executable":"' in line]
found = [one["executable"] for one in messages if one["target"]["name"] == "fabric"]
# The connection tests once more over iWARP, which has no datagrams.
for device, tests in (("", "verbs::tests verbs::connections::tests verbs::hybrid::tests"), ("WHIMBREL_TEST_DEVICE=siw0 ", "verbs::connections::tests")):
    command = f"{device}WHIMBREL_TEST_SKIPS=/run/skips {found[-1]} {tests} --test-threads 1"
    output = guest.run(f"touch /run/skips; {command}; cat /run/skips", seconds=400)
    print(output)
    # The guest's kernel tells nobody of memory that changes.
    skips = [line for line in output.splitlines() if line.startswith("skip ")]
    assert re.search(r"[1-9]\d* passed; 0 failed", output) and all(line.startswith("skip  memory::monitor, ") for line in skips), output
unanswered = "WHIMBREL_TEST_UNANSWERED=::ffff:10.98.0.77"
output = guest.run(f"ip netns exec Na env {unanswered} {found[-1]} a_host_that_does_not_answer", devices="two", seconds=400)
print(output)
assert "1 passed; 0 failed" in output, output
