"""A provider of pretend machines, as Ray's own, that has none of the group `spot` while a file says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class RefusingProvider(FakeMultiNodeProvider):  # type: ignore[misc]
    def create_node_with_resources_and_labels(
        self, node_config: Any, tags: dict[str, str], count: int, *rest: Any
    ) -> Any:
        if tags["ray-user-node-type"] == "spot" and Path(self.provider_config["refuses"]).exists():
            raise RuntimeError("InsufficientInstanceCapacity")
        return super().create_node_with_resources_and_labels(node_config, tags, count, *rest)
