"""Figures of the service itself, for Prometheus."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from cbe import __version__
from cbe.service.live.study_watcher import StudyWatcher
from cbe.service.queue.reconciler import Reconciler

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Figures:
    """Requests are counted as they come; all else is looked up when somebody asks."""

    def __init__(self, study_watcher: StudyWatcher, reconciler: Reconciler) -> None:
        self._registry = CollectorRegistry()
        labels = ("route", "method", "status")
        self._requests = Counter("cbe_requests", "Requests answered", labels, registry=self._registry)
        self._seconds = Histogram(
            "cbe_request_seconds", "Time to answer", ("route",), buckets=_BOUNDS, registry=self._registry
        )
        self._registry.register(_Studies(study_watcher, reconciler))

    def saw(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts a request by its route, not by its path: anybody could make up any number of those."""
        route = getattr(scope.get("route"), "path", "none")
        self._requests.labels(route, scope["method"] if route != "none" else "any", str(status)).inc()
        if not route.endswith(("/events", "/logs")):  # those last as long as they are read
            self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _Studies(Collector):
    def __init__(self, study_watcher: StudyWatcher, reconciler: Reconciler) -> None:
        self._study_watcher, self._reconciler = study_watcher, reconciler

    def collect(self) -> Iterator[Metric]:
        found = self._study_watcher.all()
        yield InfoMetricFamily("cbe", "The service", value={"version": __version__})
        states = GaugeMetricFamily("cbe_studies", "Studies by state", labels=["state"])
        for state, count in Count(each.state for each in found).items():
            states.add_metric([state], count)
        yield states
        trials = GaugeMetricFamily("cbe_trials", "Trials of all studies by state", labels=["state"])
        total: Count[str] = Count()
        for each in found:
            total.update(each.study_status.overview.counts)
        for state, count in total.items():
            trials.add_metric([state], count)
        yield trials
        spent = [each.study_status.overview.spent for each in found]
        yield GaugeMetricFamily("cbe_gpu_hours", "Of all studies", sum(each.gpu_hours for each in spent))
        yield GaugeMetricFamily("cbe_usd", "Spent by all studies", sum(each.usd for each in spent))
        yield GaugeMetricFamily("cbe_queue", "Studies that wait", value=len(self._reconciler.positions))
        yield GaugeMetricFamily(
            "cbe_listeners", "Open streams of events", value=self._study_watcher.listeners
        )
        yield GaugeMetricFamily("cbe_ray_up", "Whether Ray answers", float(self._reconciler.problem is None))
