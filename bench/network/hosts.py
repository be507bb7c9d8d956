#!/usr/bin/env python3
"""Runs programs of two ranks on two test hosts (tests/netns), one rank each, over wires that can be made bad: `hosts.py PLAN.json`.

The plan, as `whimbrel bench` writes it: `rails`, how many wires there are; `hydra`, the folder of an MPICH whose launcher starts ours, or null;
`runs`, each with `library` (`whimbrel`, `mpich`, `openmpi`), `home` (its prefix), `program` (its words), `rails` (those it may use), `wire` (what
is set for it, see tests/netns/forward), `variables` and `limit_s`. Prints a JSON object per run as it ends: `status` (null: too
late), `output`, `lost` (datagrams that the wire has lost). Ends with 77, and the reason in the last line, where there can be no such hosts."""

import json
import os
import sys
from pathlib import Path

plan = json.loads(Path(sys.argv[1]).read_text())
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/netns"))
import netns  # noqa: E402

netns.enter()
# Words for `WHIMBREL_…` of another prefix than build/ come with each run.
world = netns.World(2, rails=plan["rails"], wire="forward", seed=5)
wire = world.wire


def words(run):
    """The launcher's, and the variables that go with them."""
    rails, home = run["rails"], run["home"]
    nets, names = [world.nets[rail] for rail in rails], [f"rail{rail}" for rail in rails]
    variables = {"LD_LIBRARY_PATH": f"{home}/lib"}
    if run["library"] == "openmpi":
        options = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": ",".join(nets)}
        launcher = [f"{home}/bin/mpiexec", "--allow-run-as-root", "--prtemca", "plm_ssh_agent", world.agent, "--prtemca",
                    "prte_if_include", "10.99.0.0/24", "--bind-to", "none", "-x", "LD_LIBRARY_PATH"]
        for name, value in options.items():
            launcher += ["--mca", name, value]
        return [*launcher, "--host", ",".join(f"{name}:1" for name in world.names), "-n", "2"], variables
    if run["library"] == "mpich":
        variables |= {"UCX_TLS": "tcp,self", "MPIR_CVAR_NOLOCAL": "1", "FI_PROVIDER": "tcp", "UCX_NET_DEVICES": ",".join(names)}
        return world.hydra(1, home=home), variables
    variables |= {"WHIMBREL_NET": ",".join(nets), **dict(run["variables"])}
    return world.hydra(1, home=plan["hydra"]), variables


for run in plan["runs"]:
    wire.calm()
    wire.set(**run["wire"])
    before = wire.count()["lost"]
    launcher, variables = words(run)
    # The launcher's own libraries are found by its own means.
    status, output = world.run([*launcher, *run["program"]], variables, run["limit_s"])
    print(json.dumps({"status": status, "output": output, "lost": wire.count()["lost"] - before}), flush=True)
world.close()
