"""Files in a bucket that are written only where there are none.

All three clouds have that (`If-None-Match: *`, `ifGenerationMatch=0`), and pyarrow's filesystems do not: this
is all that obstore is used for. Credentials come from where pyarrow takes them: the environment, a profile of
AWS with keys in the shared file, or the machine's role.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, S3Store

ERRORS = BaseError
TIMEOUT_S = 10

_RETRIES: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=TIMEOUT_S)}


def is_possible(bucket: str, query: str) -> bool:
    """Whether the bucket has such writes: what stands in for GCS at another endpoint has none."""
    return not (bucket.startswith("gs://") and "endpoint_override" in query)


def create(bucket: str, query: str, key: str, content: bytes) -> bool:
    """Puts a file into a bucket; False where there is one of that name."""
    try:
        obstore.put(_opened(bucket, query, os.getpid()), key, content, mode="create", use_multipart=False)
    except AlreadyExistsError:
        return False
    except BaseError as error:
        _opened.cache_clear()  # keys that have expired may have been replaced in the shared file
        raise type(error)(str(error).partition("\n")[0]) from None  # the rest is for who develops obstore
    return True


@lru_cache(maxsize=64)
def _opened(bucket: str, query: str, pid: int) -> Any:
    """The bucket, once for each process: its threads do not survive a fork."""
    parts, settings = urlsplit(bucket), dict(parse_qsl(query))
    insecure = settings.get("scheme") == "http" or settings.get("enable_tls") == "false"
    options: Any = {"timeout": f"{TIMEOUT_S}s", "connect_timeout": f"{TIMEOUT_S}s", "allow_http": insecure}
    open_ = {"s3": _s3, "gs": _gs, "abfs": _abfs}[parts.scheme]
    return open_(parts.netloc, settings, {"client_options": options, "retry_config": _RETRIES})


def _s3(netloc: str, settings: Mapping[str, str], options: dict[str, Any]) -> Any:
    endpoint = settings.get("endpoint_override")
    if endpoint and "://" not in endpoint:
        endpoint = f"{settings.get('scheme', 'https')}://{endpoint}"
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    profile = _profile()
    region = settings.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    region = region or profile.pop("region", None) or _region_of(netloc, endpoint)
    if endpoint:
        allowed = {**options["client_options"], "allow_http": endpoint.startswith("http://")}
        options |= {"endpoint": endpoint, "client_options": allowed}
    return S3Store(netloc, region=region, virtual_hosted_style_request=not endpoint, **profile, **options)


def _region_of(bucket: str, endpoint: str | None) -> str:
    """As pyarrow finds it out, where nothing says it."""
    from pyarrow import fs

    if endpoint:
        return "us-east-1"
    region: str = fs.resolve_s3_region(bucket)
    return region


def _profile() -> dict[str, Any]:
    """The keys of a profile in AWS's shared files; the environment's come before them."""
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    name, found = os.environ.get("AWS_PROFILE", "default"), configparser.RawConfigParser()
    shared = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    config = configparser.RawConfigParser()
    found.read(Path(shared).expanduser())
    config.read(Path(os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser())
    keys: dict[str, str] = {}
    for file, section in ((config, f"profile {name}"), (config, name), (found, name)):
        keys.update(file[section] if file.has_section(section) else {})
    names = {
        "aws_access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token",
        "region": "region",
    }
    return {ours: keys[theirs] for theirs, ours in names.items() if keys.get(theirs)}


def _gs(netloc: str, settings: Mapping[str, str], options: dict[str, Any]) -> Any:
    user, _, bucket = netloc.rpartition("@")
    if user == "anonymous":
        options["skip_signature"] = True
    return GCSStore(bucket, **options)


def _abfs(netloc: str, settings: Mapping[str, str], options: dict[str, Any]) -> Any:
    container, _, host = netloc.partition("@")
    account = host.partition(".")[0]
    if authority := settings.get("blob_storage_authority"):
        scheme = "http" if settings.get("enable_tls") == "false" else "https"
        place = f"{account}{authority}" if authority.startswith(".") else f"{authority}/{account}"
        options["endpoint"] = f"{scheme}://{place}"
    return AzureStore(container, account_name=account, **options)
