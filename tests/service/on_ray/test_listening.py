"""Where the service listens: what an address for others needs, TLS, and what is left when it ends."""

from __future__ import annotations

import datetime
import socket
import ssl
import time
from pathlib import Path

import httpx
import pytest

from cbe.errors import InputError
from cbe.service.auth.tokens import Role, Tokens
from cbe.service.queue.ray_jobs import Jobs
from cbe.service.serve import Settings, check
from cbe.service.service import Service
from cbe.service.web.app import create_app
from cbe.store.folder import Store
from tests.conftest import Cbe, free_port
from tests.made import finished
from tests.service.conftest import NOBODY, bearer, serving
from tests.service.on_ray.callers import DAY_S, PUBLIC, answer

SOON_S = 60.0


def test_an_address_for_others_wants_a_token_and_one_of_this_machine_does_not(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with pytest.raises(InputError) as refused:
        check(Settings(store, port=free_port(), public=PUBLIC))
    told = f"--url {PUBLIC}: can be reached from other machines, and there is no token; make one with"
    assert str(refused.value).startswith(told) and str(refused.value).endswith("or leave --url out")
    for here in ("http://localhost:9000", "http://127.0.0.1", "https://[::1]:9000/"):
        check(Settings(store, port=free_port(), public=here))
    Tokens(Store.open(store)).create("first", Role.read)
    check(Settings(store, port=free_port(), public=PUBLIC))


@pytest.mark.parametrize(
    "url",
    [
        *("", "studies.example.org", "ftp://studies.example.org", "https://", "https://a:port", "https://["),
        *("https://me:pass@studies.example.org", "https://a b", "https://a?b", "https://a#b", "https://a\n"),
    ],
)
def test_an_address_for_others_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError, match="is no address; give one as https://"):
        check(Settings(str(tmp_path), port=free_port(), public=url))


def test_the_command_that_trains_a_trial_again_names_the_address_for_others(tmp_path: Path) -> None:
    finished(tmp_path)
    service = Service(Store.open(str(tmp_path)), Jobs(NOBODY))
    text, _ = service.tokens.create("first", Role.read)
    for public, address in ((f"{PUBLIC}/", PUBLIC), (None, "http://localhost")):
        app = create_app(service, public=public)
        found = answer(app, "/api/studies/made/trials/t0000", **bearer(text)).json()["rerun"]
        assert found.startswith(f"cbe show made/t0000 --yaml --address {address} > "), found


def test_what_cannot_be_listened_at_is_told_with_what_to_change(tmp_path: Path) -> None:
    Tokens(Store.open(str(tmp_path))).create("first", Role.read)
    check(Settings(str(tmp_path), host="::", port=free_port()))
    for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
        with socket.create_server((host, 0), family=family) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(InputError, match=f"--port {port}: .*; give another --port"):
                check(Settings(str(tmp_path), host=host, port=port))
    for host in ("192.0.2.1", "2001:db8::1"):  # of documentation, and so nobody's
        with pytest.raises(InputError, match="; give another --host"):
            check(Settings(str(tmp_path), host=host, port=free_port()))


@pytest.mark.parametrize("made", ["none", "revoked", "expired"])
def test_the_network_is_not_served_without_a_token_that_holds(cbe_: Cbe, tmp_path: Path, made: str) -> None:
    tokens = Tokens(Store.open(str(tmp_path / "store")), now=lambda: time.time() - 2 * DAY_S)
    if made == "revoked":
        tokens.revoke(tokens.create("gone", Role.admin)[1].id)
    if made == "expired":
        tokens.create("late", Role.admin, days=1)
    done = cbe_("serve", "--store", "store", "--host", "0.0.0.0", "--ray", NOBODY)
    assert (done.code, done.out) == (2, "")
    told = " ".join(done.err.split())
    assert "--host 0.0.0.0: can be reached from other machines, and there is no token" in told
    assert "cbe token create NAME --role admin" in told and "Traceback" not in told


def test_the_service_listens_at_an_ipv6_address(tmp_path: Path) -> None:
    with serving(tmp_path / "store", NOBODY, "--host", "::1", host="[::1]") as service:
        assert service.http.get("/api/me").json()["open"] is True
        own = {"origin": service.url, "sec-fetch-site": "same-origin"}
        assert service.http.post("/api/studies/none/stop", headers=own).status_code == 404


def test_the_service_speaks_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving(tmp_path / "store", NOBODY, *options, trusted=certificate) as service:
        assert service.url.startswith("https://")
        found = service.http.get("/api/me")
        assert found.json()["open"] is True
        assert found.headers["strict-transport-security"] == "max-age=31536000"
        own = {"origin": service.url, "sec-fetch-site": "same-origin"}
        assert service.http.post("/api/studies/none/stop", headers=own).status_code == 404
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{service.url}/healthz", verify=ssl.create_default_context())
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"http://127.0.0.1:{service.port}/healthz")
        old = ssl.create_default_context(cafile=str(certificate))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        old.set_ciphers("AES128-SHA:@SECLEVEL=0")  # without forward secrecy
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{service.url}/healthz", verify=old)
    assert "Traceback" not in service.log.read_text()


@pytest.mark.parametrize("given", ["cert", "missing"])
def test_half_of_tls_is_refused(cbe_: Cbe, tmp_path: Path, given: str) -> None:
    options: list[object] = ["--tls-cert", self_signed(tmp_path)[0]]
    if given == "missing":
        options += ["--tls-key", "nothing.pem"]
    done = cbe_("serve", "--store", "store", "--ray", NOBODY, *options)
    wanted = "wanted both --tls-cert and --tls-key" if given == "cert" else "there is no such file"
    assert done.code == 2 and wanted in " ".join(done.err.split()) and "Traceback" not in done.err


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cbe")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - day, now + day
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return certificate, private
