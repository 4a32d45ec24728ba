"""Semi-supervised image classification with the channel-based ensemble (CBE).

results = cbe.open_store("results")          # or s3://bucket/prefix
results.best("quickstart").sentence
results.sql("select trial, objective from trials where state = 'completed'").to_pandas()

service = cbe.connect("https://cbe.example.org")  # with a token in CBE_TOKEN
service.submit("studies/quickstart.yaml")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cbe.report.results import open_store
    from cbe.service.client import connect

__version__ = "0.1.0"
__all__ = ["__version__", "connect", "open_store"]


def __getattr__(name: str) -> Any:
    """Loads what is asked for only then: most commands need none of it."""
    if name == "open_store":
        from cbe.report.results import open_store

        return open_store
    if name == "connect":
        from cbe.service.client import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
