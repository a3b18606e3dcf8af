"""The command line of the simulated cluster, shared by `python -m scheduler.simcluster` and the
management command: arguments, signals, and one printed line with the kubeconfig's path."""

import argparse
import asyncio
import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path

import uvloop

from scheduler.simcluster.clock import RunningClock, SteppedClock
from scheduler.simcluster.cluster import Options, SimCluster
from scheduler.simcluster.profiles.model import Profile, load_profile, uniform_profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)"
    )
    parser.add_argument("--nodes", type=int, default=None, help="number of alike H100 nodes")
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--nodes-per-leaf", type=int, default=16)
    parser.add_argument("--leaves-per-spine", type=int, default=8)
    parser.add_argument("--profile", default=None, help="a shipped profile's name, or a file")
    parser.add_argument(
        "--kubeconfig", type=Path, default=None, help="where to write the kubeconfig"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--speed", type=float, default=1.0, help="simulated seconds a second; 0: stepped"
    )
    parser.add_argument("--rbac", action="store_true", help="enforce roles and bindings")
    parser.add_argument(
        "--token",
        default=os.environ.get("KUBERNETES_TOKEN", ""),
        help="the administrator's token (default: $KUBERNETES_TOKEN, which `ps` does not show; else random)",
    )


def profile_from(arguments: argparse.Namespace) -> Profile:
    """The profile that the arguments ask for. Raises ProfileError."""
    if arguments.profile:
        return load_profile(arguments.profile)
    if arguments.nodes is None:
        return load_profile("demo")
    return uniform_profile(
        arguments.nodes, gpus_per_node=arguments.gpus_per_node,
        nodes_per_leaf=arguments.nodes_per_leaf, leaves_per_spine=arguments.leaves_per_spine,
    )  # fmt: skip


def run(arguments: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Runs a cluster until SIGINT or SIGTERM; says the kubeconfig's path when it answers."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(arguments, say))


async def _serve(arguments: argparse.Namespace, say: Callable[[str], None]) -> None:
    clock = SteppedClock() if arguments.speed == 0 else RunningClock(speed=arguments.speed)
    options = Options(
        seed=arguments.seed, port=arguments.port, rbac=arguments.rbac,
        kubeconfig_path=arguments.kubeconfig, admin_token=arguments.token,
    )  # fmt: skip
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with SimCluster(profile_from(arguments), clock=clock, options=options) as cluster:
        _calm_collector()
        say(cluster.kubeconfig)
        await stop.wait()


def _calm_collector() -> None:
    """Most objects here live long: full collections would cost a third of the processor."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
