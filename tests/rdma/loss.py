#!/usr/bin/env python3
# timeout: 900
"""Two hosts with a soft RoCE device each, between which some of the datagrams are lost: nothing of the messages is."""

import re

import guest

MOST_BYTES = 1 << 20

guest.need()
messages = guest.compile_program(guest.HERE / "messages.c")
for over, percent in [(over, percent) for over in ("ud", "hybrid") for percent in (0, 1, 5)]:
    drop = "; ".join(
        f"ip netns exec N{one} nft 'add table inet t; add chain inet t in {{ type filter hook input priority 0; }}; "
        f"add rule inet t in udp dport 4791 numgen random mod 100 < {percent} counter drop'"
        for one in "ab"
    )
    ranks = guest.hydra(2, f"{messages} {MOST_BYTES}")
    output = guest.run(f"set -e; {drop if percent else 'true'}; {ranks}; ip netns exec Na nft list ruleset", devices="two", seconds=400, WHIMBREL_VERBS=over, WHIMBREL_VERBS_PRICE="16")
    assert "4 ranks: all is well" in output, output
    lost = [int(count) for count in re.findall(r"counter packets (\d+)", output)]
    assert not percent or sum(lost) > 10, f"nothing was lost on the way:\n{output}"
    print(f"{over}: {percent} % lost on the way: {sum(lost)} datagrams at one host, none of the messages")
