#!/usr/bin/env python3
# timeout: 600
"""Sockets beside a soft RoCE device, on two hosts: when the device's link goes down, messages take the other network, whose packets are shorter, and come back to
the device with its link. A software device is not chosen where nobody asks for it."""

import guest

guest.need()
bursts = guest.compile_program(guest.HERE / "bursts.c")
way = {"WHIMBREL_FABRIC": "verbs+udp", "WHIMBREL_VERBS_PRICE": "4", "WHIMBREL_REPORT": "on"}
short = "for one in a b; do ip -n N$one link set dev m$one mtu 1500; done;"

for over, rounds in (("ud", 60), ("hybrid", 180)):
    for happens in ("(sleep 4; ip -n Na link set va down) &", "(sleep 4; ip -n Na link set va down; sleep 3; ip -n Na link set va up) &"):
        command = f"{short} {happens} {guest.hydra(1, f'{bursts} {rounds} 30')}"
        output = guest.run(command, devices="two", seconds=150, WHIMBREL_VERBS=over, **way)
        print(output)
        assert "2 ranks: all is well" in output, output
        # The link was down while there were messages.
        assert over == "ud" or "and broken 0 times" not in output, output

for word, chosen in (("auto", "not used: there is no port of hardware that has datagrams"), ("verbs+udp", "used: WHIMBREL_FABRIC=verbs+udp, as datagrams, and")):
    output = guest.run("whimbrel info --fabrics", WHIMBREL_FABRIC=word)
    print(output)
    assert f"\nverbs   {chosen}" in output and "in software" in output, output
