"""Mean teacher (Tarvainen & Valpola 2017): agree with the running mean of one's own weights."""

from cbe.ssl.losses import squared_error
from cbe.ssl.method import Method

METHOD = Method(student="weak", teacher="ema", loss=squared_error, weight=50.0, ramp=0.4)
