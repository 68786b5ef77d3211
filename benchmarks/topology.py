"""Sixteen nodes in four racks, in network namespaces, with a cap on every rack's link: time of an exchange.

Each node is a process in a namespace of its own, behind the bridge of its rack; the racks meet in a spine,
and a token bucket (tc tbf) caps their links both ways. Processes are forked from one that has torch loaded.
The model is that of train/levels.py: the time without a cap, bytes that cross over the cap, and what of them
travels while the processes that share a core pack in turn. Needs Linux, root, ip and tc.

time_model_error      largest error of the model over the ways of exchanging
two_level_over_flat   time of two levels over that of one ring, ranks dealt over racks in turn
onebit_over_flat      time of packed signs over the same

    python benchmarks/topology.py [--values 1000000] [--mbit 40] [--repeat 3] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist

from holoshard.train.compress.replicas import GroupReplicas
from holoshard.train.compress.sign import Sign
from holoshard.train.compress.two_level import make_exchange, two_level
from holoshard.train.levels import WAYS, exchange_seconds
from holoshard.train.topology import Topology

RACKS, EACH = 4, 4
NODES = RACKS * EACH
PAYLOAD = 1448 / 1514  # of an Ethernet frame that TCP fills
CLONE_NEWNET = 0x40000000


def order(dealt: bool) -> list[int]:
    """The node of each rank: rack by rack, or dealt over the racks in turn."""
    return [i % RACKS * EACH + i // RACKS for i in range(NODES)] if dealt else list(range(NODES))


def topology(dealt: bool) -> Topology:
    racks = {f"n{i}": f"r{i // EACH}" for i in range(NODES)}
    return Topology.of([f"n{i}" for i in order(dealt)], racks)


def shell(*commands: str, within: int = 0) -> None:
    """Run commands of ip and tc, in the network namespace of a process."""
    enter = ["nsenter", "-t", str(within), "-n"] if within else []
    for command in commands:
        subprocess.run([*enter, *command.split()], check=True, capture_output=True)


def build(children: list[int]) -> None:
    """Bridges, links, addresses; `children` wait in namespaces of their own."""
    shell("ip link set lo up", "ip link add spine type bridge", "ip link set spine up")
    for rack in range(RACKS):
        shell(
            f"ip link add rack{rack} type bridge", f"ip link set rack{rack} up",
            f"ip link add up{rack} type veth peer name down{rack}",
            f"ip link set up{rack} master rack{rack} up", f"ip link set down{rack} master spine up",
        )  # fmt: skip
    for node, child in enumerate(children):
        shell(
            f"ip link add node{node} type veth peer name in{node}",
            f"ip link set node{node} master rack{node // EACH} up", f"ip link set in{node} netns {child}",
        )  # fmt: skip
        shell(
            f"ip link set in{node} name eth0", f"ip addr add 10.0.0.{node + 1}/24 dev eth0",
            "ip link set eth0 up", "ip link set lo up", within=child,
        )  # fmt: skip


def cap(mbit: float) -> None:
    """Hold the links between racks and spine to a rate, both ways."""
    for rack in range(RACKS):
        for end in (f"up{rack}", f"down{rack}"):
            shell(f"tc qdisc add dev {end} root tbf rate {mbit}mbit burst 4kb latency 2s")


def ways(dealt: bool, rank: int, n: int) -> dict[str, Callable[[int], Any]]:
    """Each way of exchanging as a function of the step, in this process."""
    racks = topology(dealt).by_rack(range(NODES))
    one, two = GroupReplicas(dist.group.WORLD), two_level(dist.group.WORLD, racks, rank)
    assert two is not None
    values = torch.randn(n)
    single, double = (
        make_exchange([n], replicas, Sign(), feedback=True, stream=0, device="cpu") for replicas in (one, two)
    )
    return {
        "flat": lambda step: one.sum(values.clone()),
        "two-level": lambda step: two.sum(values.clone()),
        "1-bit": lambda step: single.mean(values, step),
        "two-level, 1-bit across": lambda step: double.mean(values, step),
    }


def node(rank: int, dealt: bool, n: int, repeat: int, store: str, told: int, tell: int) -> None:
    """The life of one process: all ways without a cap, then, when told, with it."""
    os.read(told, 1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, NODES), rank=rank, world_size=NODES)
    mine = ways(dealt, rank, n)
    for phase in ("free", "capped"):
        for way, exchange in mine.items():
            times = []
            for step in range(repeat + 1):
                dist.barrier()
                begin = time.perf_counter()
                exchange(step)
                dist.barrier()
                times.append(time.perf_counter() - begin)
            if rank == 0:
                line = {"phase": phase, "way": way, "seconds": statistics.median(times[1:])}
                os.write(tell, (json.dumps(line) + "\n").encode())
        if rank == 0:
            os.write(tell, b"\n")
        if phase == "free":
            os.read(told, 1)
    dist.destroy_process_group()


def measure(dealt: bool, n: int, mbit: float, repeat: int) -> dict[str, dict[str, float]]:
    """Seconds of each way, free, capped, and as the model has it."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    heard, tell = os.pipe()
    children, told = [0] * NODES, [0] * NODES
    with tempfile.TemporaryDirectory() as folder:
        for rank, place in enumerate(order(dealt)):
            listen, told[rank] = os.pipe()
            ready, say = os.pipe()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    if libc.unshare(CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "no network namespace")
                    os.write(say, b"x")
                    node(rank, dealt, n, repeat, f"{folder}/store", listen, tell)
                    code = 0
                finally:
                    os._exit(code)
            os.read(ready, 1)
            children[place] = child
        try:
            build(children)
            for each in told:
                os.write(each, b"x")
            lines = os.fdopen(heard)
            found = phase(lines)
            cap(mbit)
            for each in told:
                os.write(each, b"x")
            found |= phase(lines)
        finally:
            for child in children:
                os.waitpid(child, 0)
    rate = mbit * 1e6 / 8 * PAYLOAD
    where, ranks, table = topology(dealt), range(NODES), {}
    turns = max(1, NODES // len(os.sched_getaffinity(0)))
    for way, count in WAYS.items():
        free = found["free", way]
        table[way] = {
            "cross_mb": count(where, ranks, n)["cross"] / 1e6, "free": free, "capped": found["capped", way],
            "model": exchange_seconds(where, ranks, way, n, rate, free, turns),
        }  # fmt: skip
    return table


def phase(lines: Any) -> dict[tuple[str, str], float]:
    """What the first process says until an empty line."""
    found = {}
    for line in iter(lines.readline, "\n"):
        if not line:
            raise SystemExit("a node failed")
        told = json.loads(line)
        found[told["phase"], told["way"]] = told["seconds"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--mbit", type=float, default=40.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--dealt", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    n, repeat = (200_000, 5) if given.quick else (given.values, given.repeat)
    if given.dealt is not None:
        print(json.dumps(measure(bool(given.dealt), n, given.mbit, repeat)))
        return
    if os.geteuid() or subprocess.run(["unshare", "-n", "true"], check=False).returncode:
        print("skipped: network namespaces need root")
        return
    found: dict[str, Any] = {}
    for dealt in (0, 1):
        command = ["unshare", "-n", sys.executable, __file__, "--dealt", str(dealt), "--values", str(n)]
        command += ["--mbit", str(given.mbit), "--repeat", str(repeat)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        table = found["dealt" if dealt else "by rack"] = json.loads(done.stdout.splitlines()[-1])
        ranks = "dealt over racks in turn" if dealt else "rack by rack"
        print(f"\nranks {ranks}, {n:,} values, {given.mbit:g} Mbit/s\n")
        print("| way | crosses, MB | free, s | capped, s | model, s | model / capped |")
        print("|---|---|---|---|---|---|")
        for way, row in table.items():
            cells = f"{row['cross_mb']:.2f} | {row['free']:.3f} | {row['capped']:.3f} | {row['model']:.3f}"
            print(f"| {way} | {cells} | {row['model'] / row['capped']:.2f} |")
    rows = [row for table in found.values() for row in table.values()]
    ring = found["dealt"]["flat"]["capped"]
    figures = {
        "time_model_error": max(abs(row["model"] / row["capped"] - 1) for row in rows),
        "two_level_over_flat": found["dealt"]["two-level"]["capped"] / ring,
        "onebit_over_flat": found["dealt"]["1-bit"]["capped"] / ring,
    }
    for name, value in figures.items():
        print(f"{name:<24} {value:.3f}")
    if given.json:
        print(json.dumps(figures, sort_keys=True))


if __name__ == "__main__":
    main()
