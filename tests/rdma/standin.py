#!/usr/bin/env python3
# timeout: 1800
# variants: device ud rc hybrid breaks beside
"""The stand-in for an RDMA device, by itself and under the unit tests that want a device; and programs over it, as datagrams, over connections, over both with
connections that come and go all the time, and with such that break: messages, derived types, collectives, those of tests/programs-c, and a rank that is
killed. Beside sockets: a rank without the device, and a device that falls silent for a while."""

import json
import os
import re
import subprocess
import sys

import standin_library

EVERYWHERE = ["p2p_sizes", "p2p_order", "p2p_modes", "p2p_unexpected", "p2p_probe", "p2p_truncate", "datatypes", "coll_values", "coll_vector", "coll_two"]
LONG = float(os.environ.get("WHIMBREL_TEST_SCALE") or 1) >= 2
MOST_BYTES = 64 << 20 if LONG else 1 << 20
# What is not acknowledged is sent again after 4.096 us times two to the power of this: 0.27 s.
AGAIN = 16
ROUNDS = 100 if LONG else 15
# A few messages earn a connection, and a moment without any loses it.
CHEAP = {"WHIMBREL_VERBS": "hybrid", "WHIMBREL_VERBS_PRICE": "4", "WHIMBREL_VERBS_PERIOD": "1", "WHIMBREL_REPORT": "on"}
WAYS = {
    "ud": {"WHIMBREL_VERBS": "ud"},
    "rc": {"WHIMBREL_VERBS": "rc"},
    "hybrid": CHEAP,
    "breaks": {**CHEAP, "STANDIN_BREAK": "60"},
}


def itself(device):
    print(device.run([device.folder / "check"]))
    print(device.run([device.folder / "check", AGAIN], STANDIN_LOSS="200"))
    again = sum(one["again"] for one in device.counts())
    assert again > 0, "nothing was lost"
    # With the package that has most features of others, nothing is built anew for this.
    words = [os.environ.get("CARGO", "cargo"), "test", "--quiet", "--package", "whimbrel-fabric", "--package", "whimbrel-cli", "--lib", "--no-run", "--message-format=json"]
    built = subprocess.run(words, cwd=standin_library.ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines() if '"executable":"' in line]
    found = [one["executable"] for one in messages if one["target"]["name"] == "fabric"]
    skips = standin_library.SCRATCH / "skips"
    skips.write_text("")
    output = device.run([found[-1], "verbs::tests", "verbs::connections::tests", "verbs::hybrid::tests", "--test-threads", "1"], seconds=900, WHIMBREL_TEST_SKIPS=str(skips))
    print(output)
    # Where the kernel tells nobody of memory that changes, nothing stays registered.
    left_out = skips.read_text().splitlines()
    print(*left_out, sep="\n")
    assert re.search(r"[1-9]\d* passed; 0 failed", output) and all(line.startswith("skip  memory::monitor, ") for line in left_out), output


def connections(output):
    """How often connections were made, given back and broken, and what was sent again, by the report."""
    found = re.search(r"connections were made (\d+) times, given back (\d+) times and broken (\d+) times, after which (\d+) messages", output)
    return [int(count) for count in found.groups()] if found else [0, 0, 0, 0]


def programs(device, over):
    way, sums = WAYS[over], [0, 0, 0, 0]

    def job(ranks, *words, **environment):
        output = device.run(["mpiexec", "-n", ranks, *words], seconds=900, **way, **environment)
        sums[:] = [one + other for one, other in zip(sums, connections(output))]
        return output

    fabrics = device.run(["whimbrel", "info", "--fabrics"], **way)
    print(fabrics)
    assert "standin0 port 1: usable: RoCE v2 on lo, GID ::ffff:127.0.0.1 at index 0, datagrams of 4096 bytes" in fabrics, fabrics
    messages = standin_library.compile_program(standin_library.HERE / "messages.c")
    for ranks in (2, 4):
        output = job(ranks, messages, MOST_BYTES)
        print(output, end="")
        counts = device.counts()
        print(*counts, sep="\n")
        assert f"{ranks} ranks: all is well" in output and len(counts) == ranks, output
        for one in counts:
            # The test's traffic cannot have gone another way.
            carried = {
                "ud": one["datagrams"] * 4096 >= MOST_BYTES and one["sends"] == 0,
                "rc": one["sends"] > 100 and one["reads"] > 10,
                "hybrid": one["sends"] > 0 and one["datagrams"] > 0 and one["broken"] == 0,
                "breaks": one["sends"] > 0 and one["datagrams"] > 0,
            }
            assert carried[over], one
            assert over == "ud" or one["not_ready"] == 0, "a frame was sent that no receive was posted for"
    for name in EVERYWHERE[: None if LONG or over in ("hybrid", "breaks") else 3]:
        print(name, job(2, standin_library.compile_program(standin_library.ROOT / "tests/programs-c" / f"{name}.c")))
    if over in ("ud", "rc"):
        footprint(device, job, over)
    if over == "rc":
        preferred(device, job)
    if over in ("hybrid", "breaks"):
        bursts(job, over, sums)
    waits = standin_library.compile_program(standin_library.HERE / "waits.c")
    status, output = device.outcome(["mpiexec", "-n", 2, waits, "kill"], **way)
    print(output)
    assert status == 137 and "rank 1" in output and "SIGKILL" in output, f"exit status {status}"


def bursts(job, over, sums):
    """Between bursts of messages connections go back; where they break, nobody notices, whichever way long messages take."""
    program = standin_library.compile_program(standin_library.HERE / "bursts.c")
    for ranks in (2, 4):
        for rendezvous in ("read", "write"):
            print(job(ranks, program, ROUNDS, 30, WHIMBREL_VERBS_RENDEZVOUS=rendezvous))
    made, given_back, broken, resent = sums
    print(f"connections made {made}, given back {given_back}, broken {broken}; messages sent again {resent}")
    assert made > 40 and given_back > 20, sums
    assert broken > 10 and resent > 20 if over == "breaks" else broken == 0, sums


def beside(device):
    """Sockets beside the device: it carries all where both ranks have it; who does not have it is reached all the same; and when it falls silent, sockets take over."""
    way = {**CHEAP, "WHIMBREL_FABRIC": "verbs+udp"}
    for word, vendor, used in [("auto", "0", False), ("auto", "0x2c9", True), ("verbs+udp", "0", True), ("udp", "0x2c9", False)]:
        fabrics = device.run(["whimbrel", "info", "--fabrics"], WHIMBREL_FABRIC=word, STANDIN_VENDOR=vendor)
        print(fabrics)
        assert bool(re.search("^verbs   used", fabrics, re.M)) == used, fabrics
        assert ("in software" in fabrics) == (vendor == "0"), fabrics
    messages = standin_library.compile_program(standin_library.HERE / "messages.c")
    bursts = standin_library.compile_program(standin_library.HERE / "bursts.c")
    for ranks in (2, 4):
        print(device.run(["mpiexec", "-n", ranks, messages, MOST_BYTES], seconds=900, **way))
        for one in device.counts():
            print(one)
            assert one["sends"] > 0 and one["datagrams"] > 0, one
    # The first rank alone has no device: whoever speaks to it does so over sockets.
    without = f'[ "$WHIMBREL_RANK" = 0 ] && unset LD_LIBRARY_PATH; exec {messages} {MOST_BYTES}'
    print(device.run(["mpiexec", "-n", 2, "sh", "-c", without], seconds=900, **way))
    assert len(device.counts()) == 1 and device.counts()[0]["datagrams"] == 0, device.counts()
    print(device.run(["mpiexec", "-n", 3, "sh", "-c", without], seconds=900, **way))
    assert len(device.counts()) == 2 and all(one["datagrams"] > 0 for one in device.counts()), device.counts()
    # Nothing comes over the device from then on, or for a while.
    for ranks, over, silent in [(2, "hybrid", "200,600000"), (4, "hybrid", "200,600000"), (2, "ud", "200,600000"), (2, "hybrid", "200,1500"), (2, "ud", "200,1000")]:
        print(device.run(["mpiexec", "-n", ranks, bursts, 15, 30], seconds=300, **{**way, "WHIMBREL_VERBS": over}, STANDIN_SILENT=silent))
        for one in device.counts():
            print(one)
            assert one["datagrams"] > 0, one


def footprint(device, job, over):
    """Registered memory and queue pairs of a rank that has spoken to all others: as the device counts them, and for datagrams the same in any job."""
    allconn = standin_library.compile_program(standin_library.ROOT / "bench/network/allconn.c")
    registered = []
    for ranks in (2, 4, 8):
        output = job(ranks, allconn, "pause_ms=20")
        said = json.loads(output.splitlines()[-1])
        print({name: said[name] for name in ("ranks", "registered_bytes_max", "queue_pairs", "queue_pairs_max")})
        assert said["registered_bytes_max"] == max(one["registered_bytes_most"] for one in device.counts()), output
        # Connections to all others, and one pair for making them.
        pairs = 1 if over == "ud" else ranks
        assert (said["queue_pairs"], said["queue_pairs_max"]) == (pairs, pairs), output
        registered.append(said["registered_bytes_max"])
    assert over == "rc" or len(set(registered)) == 1, registered


def preferred(device, job):
    """Buffers of persistent and partitioned requests are sent from where they are, the first time too; others from the second time on."""
    costs = device.run(["whimbrel", "info", "--costs"], WHIMBREL_VERBS="rc")
    print(costs)
    if "search (V)" not in costs:
        print("skip  memory::monitor, buffers that are preferred: userfaultfd is refused: registrations have no costs here")
        return
    persistent = standin_library.compile_program(standin_library.HERE / "persistent.c")
    output = job(2, persistent, WHIMBREL_SEND_IN_PLACE="always", WHIMBREL_REPORT="on")
    print(output)
    assert "all is well" in output and " 20 short messages (80.0 KiB) left from buffers that are used often" in output, output


what = sys.argv[1] if len(sys.argv) > 1 else "device"
found_device = standin_library.need()
if what == "device":
    itself(found_device)
elif what == "beside":
    beside(found_device)
else:
    programs(found_device, what)
