"""A spot machine that is not to be had, under Ray's own autoscaler: one on demand replaces it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.conftest import Growing
from tests.waiting import until


@contextmanager
def demand(cluster: Growing) -> Iterator[None]:
    """Somebody who wants what is rare."""
    import ray

    ray.init(cluster.address, log_to_driver=False)
    try:
        group = ray.util.placement_group([{"rare": 1}])
        yield
        ray.util.remove_placement_group(group)
    finally:
        ray.shutdown()


@contextmanager
def fallback(cluster: Growing) -> Iterator[None]:
    """The program as the head starts it."""
    command = [sys.executable, "-m", "cbe.cluster.fallback", cluster.folder / "cluster.yaml", cluster.address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def test_a_refused_spot_machine_is_replaced_by_one_on_demand(cards: Growing) -> None:
    from ray.autoscaler.v2.sdk import get_cluster_status

    def refused() -> list[str]:
        return [each.ray_node_type_name for each in get_cluster_status(cards.address).failed_launches]

    def groups() -> list[str]:
        status = get_cluster_status(cards.address)
        return [each.ray_node_type_name for each in (*status.active_nodes, *status.idle_nodes)]

    until(lambda: not cards.nodes(), what="an empty cluster")
    cards.refuses.touch()
    with demand(cards):
        # What Ray does by itself: it asks for spot, and again, and never for the other.
        until(lambda: refused().count("spot") >= 3, what="refused launches")
        assert "on_demand" not in groups()
        with fallback(cards):
            until(lambda: "on_demand" in groups(), what="a machine on demand")
