"""Semi-supervised image classification with the channel-based ensemble (CBE).

done = cbe.run("studies/quickstart.yaml")    # on this machine
done.best().sentence

results = cbe.open_store("results")          # or s3://bucket/prefix
results.best("quickstart").sentence
results.sql("select trial, lr, objective from trials where state = 'completed'").to_pandas()

service = cbe.connect("https://cbe.example.org")  # with a token in CBE_TOKEN
service.submit("studies/quickstart.yaml")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cbe.errors import CbeError, InputError
    from cbe.local import run
    from cbe.report.results import open_store
    from cbe.service.clients.service import connect
    from cbe.spec import StudyConfig

__version__ = "0.1.0"
__all__ = ["CbeError", "InputError", "StudyConfig", "__version__", "connect", "open_store", "run"]

_FROM = {
    "CbeError": "cbe.errors",
    "InputError": "cbe.errors",
    "StudyConfig": "cbe.spec",
    "connect": "cbe.service.clients.service",
    "open_store": "cbe.report.results",
    "run": "cbe.local",
}


def __getattr__(name: str) -> Any:
    """Loads what is asked for only then: most commands need none of it."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
