"""Π-model (Laine & Aila 2017): two weak views agree. With the `temporal` ensemble: temporal ensembling."""

from cbe.ssl.losses import squared_error
from cbe.ssl.method import Method

METHOD = Method(student="weak", teacher="weak", loss=squared_error, ramp=0.4)
