"""Addresses in a bucket: what they may say, and how they are opened.

    s3://bucket/prefix    gs://bucket/prefix    abfs://container@account.dfs.core.windows.net/prefix

Credentials are the environment's or the machine's role, never the address's, which is stored and shown. Its
query may have settings of pyarrow's that are no secrets, as the endpoint:
`s3://bucket/prefix?endpoint_override=127.0.0.1:9000&scheme=http&region=us-east-1`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from cbe.errors import InputError


@dataclass(frozen=True)
class Cloud:
    form: str
    bucket: str  # a pattern of what stands before the prefix
    settings: tuple[str, ...]  # that a query may have
    credentials: str
    hint: str
    ours: str = ""  # a setting for addresses without it
    lists_folders: bool = True
    writes_whole: bool = True  # or else a file shows as an empty one while it is written
    streams: bool = False  # a file that can be sought in would hold the GIL until its first bytes are there


CLOUDS = {
    "s3": Cloud(
        "s3://bucket/prefix",
        r"[^@:]+",
        ("endpoint_override", "scheme", "region"),
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_PROFILE",
        "check the bucket, its region, AWS_* in the environment and AWS_ENDPOINT_URL or endpoint_override",
        ours="allow_delayed_open=true",  # a small file is one request instead of three
    ),
    "gs": Cloud(
        "gs://bucket/prefix",
        r"(anonymous@)?[^@:]+",
        ("endpoint_override", "scheme", "retry_limit_seconds"),
        "GOOGLE_APPLICATION_CREDENTIALS",
        "check the bucket, GOOGLE_APPLICATION_CREDENTIALS or the machine's service account, and "
        "endpoint_override",
        ours="retry_limit_seconds=60",  # or who writes waits for a quarter of an hour
        lists_folders=False,
        streams=True,
    ),
    "abfs": Cloud(
        "abfs://container@account.dfs.core.windows.net/prefix",
        r"[^@:]+@[^@:.]+\.dfs\.core\.windows\.net",
        ("blob_storage_authority", "dfs_storage_authority", "enable_tls"),
        "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
        "check the container, the account, and AZURE_* in the environment or the machine's managed identity",
        writes_whole=False,
    ),
}
*_FIRST, _LAST = ("a local path", *(cloud.form for cloud in CLOUDS.values()))
PLACES = f"{', '.join(_FIRST)} or {_LAST}"


@dataclass(frozen=True)
class Address:
    filesystem: Any
    path: str  # on the filesystem, from the bucket on
    bucket: str  # its address
    query: str


def cloud_of(uri: str) -> Cloud | None:
    """The cloud of an address; None for a local path and for addresses of other kinds.

    >>> [cloud and cloud.form for cloud in map(cloud_of, ("gs://b/x", "ftp://b/x", "s3://", "results"))]
    ['gs://bucket/prefix', None, None, None]
    """
    scheme, _, rest = uri.partition("://")
    return CLOUDS.get(scheme) if rest.strip("/") else None


def reason(error: Exception) -> str:
    """What went wrong in one line; Azure takes several."""
    return " ".join(str(getattr(error, "strerror", None) or error).split())


def open_address(uri: str, what: str) -> Address:
    """Reads an address and makes nothing there; errors name `what` it is of, and repeat no secret."""
    import pyarrow as pa
    from pyarrow import fs

    parts = urlsplit(uri)
    where, cloud = f"{what} {parts.scheme}://…", cloud_of(uri)
    if cloud is None or not parts.netloc:
        raise InputError(f"{where}: wanted {PLACES}")
    if not re.fullmatch(cloud.bucket, parts.netloc):
        raise InputError(
            f"{where}: wanted {cloud.form}; credentials do not belong in it, put them into the environment "
            f"({cloud.credentials})"
        )
    given = {key for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if others := sorted(given - set(cloud.settings)):
        raise InputError(
            f"{where}: {', '.join(others)} in the query; wanted none but {', '.join(cloud.settings)}; "
            "remove the rest"
        )
    bucket = f"{parts.scheme}://{parts.netloc}"
    ours = "" if cloud.ours.partition("=")[0] in given else cloud.ours
    query = "&".join(filter(None, [parts.query, ours]))
    try:
        filesystem, path = fs.FileSystem.from_uri(
            f"{bucket}/{quote(parts.path.strip('/'), safe='/%')}" + (f"?{query}" if query else "")
        )
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{what} {uri}: cannot be opened ({reason(error)}); {cloud.hint}") from error
    return Address(filesystem, path.rstrip("/"), bucket, parts.query)
