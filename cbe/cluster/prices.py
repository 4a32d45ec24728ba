"""What machines cost: a dated list that comes with the package."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files

import yaml

from cbe.errors import InputError
from cbe.spec.suggestions import did_you_mean

HOURS_A_MONTH = 730


@dataclass(frozen=True)
class Price:
    """An hour of one machine, without its disk."""

    cloud: str
    region: str
    on_demand: float
    spot: float | None
    disk_gb: float
    address: float

    def hour(self, *, spot: bool, disk_gb: int) -> float:
        """USD an hour of one node, its disk and public address included."""
        machine = self.spot if spot and self.spot is not None else self.on_demand
        return machine + self.disk_gb * disk_gb + self.address


@dataclass(frozen=True)
class PriceList:
    as_of: date
    machines: dict[str, Price]

    def find(self, instance: str, where: str) -> Price:
        """The price of a machine by its cloud's name of it."""
        if instance not in self.machines:
            near = did_you_mean(instance, list(self.machines))
            raise InputError(
                f"{where}: there is no price of {instance}; {near}; others go into cbe/cluster/prices.yaml"
            )
        return self.machines[instance]


@cache
def price_list() -> PriceList:
    plain = yaml.safe_load(files("cbe.cluster").joinpath("prices.yaml").read_text("utf-8"))
    machines = {
        name: Price(
            cloud,
            about["region"],
            each["on_demand"],
            each.get("spot"),
            about["disk_gb_month"] / HOURS_A_MONTH,
            about["address"],
        )
        for cloud, about in plain["clouds"].items()
        for name, each in about["instances"].items()
    }
    return PriceList(plain["as_of"], machines)
