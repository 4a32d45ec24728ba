"""`cbe serve`: the service as a process, on the head node of a cluster or on a laptop."""

from __future__ import annotations

import errno
import logging
import resource
import shlex
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from cbe.errors import InputError
from cbe.service.auth.audit import SERVICE
from cbe.service.auth.loopback import is_loopback
from cbe.service.auth.tokens import Tokens
from cbe.service.live.webhooks import Webhooks
from cbe.service.queue import embedded_ray
from cbe.store.folder import Store, StudyFolder
from cbe.study.control import Claim, IsDriven
from cbe.words import clean

GRACE_S = 3
MOST_HEAD = 160_000  # bytes of an address and all headers
KEEP_ALIVE_S = 5  # that a connection is kept open for another request
MOST_OPEN_FILES = 65_536


@dataclass(frozen=True)
class Settings:
    store: str
    host: str = "127.0.0.1"
    port: int = 8321
    ray: str | None = None  # the address of a dashboard; None: a cluster of its own on this machine
    studies: int = 2  # that run at once
    notify: Sequence[str] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    public: str | None = None  # the address by which others reach it, where that is another

    @property
    def url(self) -> str:
        if self.public:
            return self.public.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether it is reached from this machine alone: requests through a proxy would count as local."""
        place = urlsplit(self.public).hostname if self.public else self.host
        return is_loopback(self.host) and is_loopback(place or "")


def check(settings: Settings) -> None:
    """Refuses what must not be started: a service that anybody on the network could use."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise InputError("TLS: wanted both --tls-cert and --tls-key; give the other one, too")
    for name, path in (("--tls-cert", settings.tls_cert), ("--tls-key", settings.tls_key)):
        if path is not None and not path.is_file():
            raise InputError(f"{name} {path}: there is no such file; give the path of a PEM file")
    if settings.public is not None and not _is_address(settings.public):
        raise InputError(f"--url {settings.public}: is no address; give one as https://studies.example.org")
    if not settings.loopback and not Tokens(Store.open(settings.store)).any_valid():
        here = is_loopback(settings.host)
        option, value = ("--url", settings.public) if here else ("--host", settings.host)
        raise InputError(
            f"{option} {value}: can be reached from other machines, and there is no token; make "
            f"one with `cbe token create NAME --role admin --store {shlex.quote(settings.store)}`, or leave "
            f"{option} out"
        )
    _refuse_taken(settings.host, settings.port)


def _is_address(url: str) -> bool:
    try:
        place = urlsplit(url)
        beyond = place.username or place.password or place.query or place.fragment
        named = place.scheme in ("http", "https") and place.hostname and place.port != 0
    except ValueError:
        return False
    return bool(named) and not beyond and url.isprintable() and " " not in url


def _refuse_taken(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise InputError(
            f"--host {host} --port {port}: cannot be listened at ({error.strerror}); give another {other}"
        ) from None


def serve(settings: Settings) -> None:
    """Serves until it is told to end; studies on a cluster of their own right go on."""
    check(settings)
    _log()
    _allow_many_connections()
    webhooks = Webhooks(settings.notify)
    with _alone(Store.open(settings.store)) as claim:
        _serve(settings, webhooks, claim)


def _serve(settings: Settings, webhooks: Webhooks, claim: Claim) -> None:
    log = logging.getLogger("cbe.service")
    if not settings.ray:
        log.info("starting Ray on this machine; --ray gives another")
    own = None if settings.ray else embedded_ray.started(Store.open(settings.store).uri)
    address = settings.ray or (own.address if own else "")
    # Only now: the environment says by which token Ray is spoken to.
    from cbe.service.queue.ray_jobs import Jobs
    from cbe.service.service import Service
    from cbe.service.web.app import create_app

    service = Service(
        Store.open(settings.store),
        Jobs(address, Store.open(settings.store).uri),
        limit=settings.studies,
        webhooks=webhooks,
        url=settings.url,
        is_ours=claim.writer.check,
    )
    app = create_app(
        service, loopback=settings.loopback, tls=settings.tls_cert is not None, public=settings.public
    )
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # anybody could write those
            http="h11",  # the other parser keeps headers however many come
            h11_max_incomplete_event_size=MOST_HEAD,
            timeout_keep_alive=KEEP_ALIVE_S,
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
        )
    )
    log.info("%s, store %s, Ray at %s", settings.url, service.store.uri, address)
    if not is_loopback(settings.host) and not settings.tls_cert:
        log.warning(
            "without TLS tokens can be read on their way; give --tls-cert, or put a proxy before this"
        )
    # uvicorn ends in order, and then raises the signal again that told it to.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    claim.on_superseded = lambda _: setattr(server, "should_exit", True)
    server.should_exit = claim.superseded is not None
    try:
        with suppress(KeyboardInterrupt):
            server.run()
    finally:
        if own is not None and not claim.superseded:  # its Ray is the successor's now
            log.info("ending, and Ray with it; studies that ran go on at the next start")
            service.reconciler.rest()
            own.kill()


@contextmanager
def _alone(store: Store) -> Iterator[Claim]:
    """One service a store: two would start the same studies."""
    try:
        with Claim(StudyFolder(SERVICE, store.location.at(SERVICE))) as claim:
            yield claim
    except IsDriven as error:
        raise InputError(
            f"store {store.uri}: has a service already ({error.who}); end that first, or give another --store"
        ) from None
    claim.end(_Here())


def _allow_many_connections() -> None:
    """Each listener is an open file, of which a process often gets no more than a thousand unless it asks."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, min(most, MOST_OPEN_FILES)), most))


class _Here:
    """What the service says of itself at its end."""

    def to_plain(self) -> dict[str, Any]:
        return {"stage": "finished"}


class _OneLine(logging.Formatter):
    """No record can begin another: what was given by others has no line breaks left, and no colours."""

    def format(self, record: logging.LogRecord) -> str:
        trace, record.exc_info = record.exc_info, None
        lines = [clean(super().format(record)).replace("\n", " ")]
        if trace:
            lines += [f"  {clean(line)}" for line in self.formatException(trace).splitlines()]
        return "\n".join(lines)


def _log() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("ray").setLevel(logging.WARNING)
