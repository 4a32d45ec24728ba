"""Where an address leads: to this machine alone or not, and whose pages are the service's own."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK


def origin_of(url: str) -> str:
    """An address as a browser names whose page it shows; a port that goes without saying is left out.

    >>> origin_of("https://Studies.example.org:443/cbe")
    'https://studies.example.org'
    """
    place = urlsplit(url)
    host, usual = place.hostname or "", {"http": 80, "https": 443}.get(place.scheme)
    named = f"[{host}]" if ":" in host else host
    return f"{place.scheme}://{named}" + ("" if place.port in (None, usual) else f":{place.port}")
