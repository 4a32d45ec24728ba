"""A place that holds files: a local folder, or a bucket and prefix on S3.

On S3 the credentials and the endpoint are those of the environment; as in a data path, the query may say the
endpoint: `s3://bucket/folder?endpoint_override=127.0.0.1:9000&scheme=http&region=us-east-1`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qsl, quote, urlsplit

import pyarrow as pa
from pyarrow import fs

from cbe.errors import InputError, RunError, StoreError
from cbe.files import replace_file

_QUERY = ("endpoint_override", "scheme", "region")
_S3_HINT = "check the bucket, its region, AWS_* in the environment and AWS_ENDPOINT_URL or endpoint_override"


@dataclass(frozen=True)
class Entry:
    name: str
    size: int
    modified_s: float  # since 1970
    is_folder: bool


@dataclass(frozen=True)
class Location:
    """Files are written whole or not at all; names beginning with a dot are files in the making."""

    filesystem: fs.FileSystem
    root: str
    query: str = ""

    @classmethod
    def open(cls, uri: str) -> Location:
        """Reads an address; nothing is made there."""
        if "://" not in uri:
            return cls(fs.LocalFileSystem(), str(Path(uri).expanduser().resolve()))
        parts = urlsplit(uri)
        if parts.scheme != "s3" or not parts.netloc:
            raise InputError(f"store {parts.scheme}://…: wanted a local path or s3://bucket/prefix")
        if "@" in parts.netloc:
            raise InputError(
                "store: credentials in the address; wanted s3://bucket/prefix; put them into the environment "
                "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_PROFILE)"
            )
        others = sorted({key for key, _ in parse_qsl(parts.query, keep_blank_values=True)} - set(_QUERY))
        if others:
            raise InputError(
                f"store s3://{parts.netloc}: {', '.join(others)} in the query; wanted none but "
                f"{', '.join(_QUERY)}; remove the rest"
            )
        # With a delayed open a small file is one request instead of three.
        query = "&".join(filter(None, [parts.query, "allow_delayed_open=true"]))
        try:
            address = f"s3://{parts.netloc}/{quote(parts.path.strip('/'), safe='/%')}"
            filesystem, path = fs.FileSystem.from_uri(f"{address}?{query}")
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"store {uri}: cannot be opened ({error}); {_S3_HINT}") from error
        return cls(filesystem, path.rstrip("/"), parts.query)

    @property
    def local(self) -> bool:
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def uri(self) -> str:
        if self.local:
            return self.root
        return f"s3://{quote(self.root)}" + (f"?{self.query}" if self.query else "")

    def at(self, relative: str) -> Location:
        """The place below; refuses what would lead out of this one."""
        parts = PurePosixPath(relative).parts
        if not parts or relative.startswith("/") or ".." in parts or "\\" in relative or "\0" in relative:
            raise ValueError(f"{relative!r} is not a path below a study")
        return replace(self, root="/".join([self.root.rstrip("/"), *parts]))

    def read(self) -> bytes | None:
        """The file that is here, if there is one."""
        try:
            with self.filesystem.open_input_file(self.root) as file:
                content: bytes = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from error
        return content

    def write(self, content: bytes) -> None:
        try:
            if self.local:
                replace_file(Path(self.root), lambda file: file.write(content))
            else:
                with self.filesystem.open_output_stream(self.root) as stream:
                    stream.write(content)
        except (pa.ArrowException, OSError) as error:
            hint = "free some space, or check who may write there" if self.local else _S3_HINT
            reason = getattr(error, "strerror", None) or error
            raise RunError(f"{self.uri}: could not be written ({reason}); {hint}") from error

    def delete(self) -> None:
        """Removes a file, or a folder with all it holds; what is not there is gone already."""
        try:
            kind = self.filesystem.get_file_info(self.root).type
            if kind == fs.FileType.Directory:
                self.filesystem.delete_dir(self.root)
            elif kind != fs.FileType.NotFound:
                self.filesystem.delete_file(self.root)
        except FileNotFoundError:
            return
        except (pa.ArrowException, OSError) as error:
            raise RunError(f"{self.uri}: could not be deleted ({error}); delete it by hand") from error

    def entries(self, *, hidden: bool = False, recursive: bool = False) -> list[Entry]:
        """What is below, by name; nothing where there is no such folder."""
        selector = fs.FileSelector(self.root, allow_not_found=True, recursive=recursive)
        try:
            found = self.filesystem.get_file_info(selector)
        except FileNotFoundError:  # the folder came into being between two looks at it
            return []
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from error
        entries = (
            Entry(
                info.path.removeprefix(self.root).strip("/"),
                info.size or 0,
                (info.mtime_ns or 0) / 1e9,
                info.type == fs.FileType.Directory,
            )
            for info in found
            if info.type in (fs.FileType.File, fs.FileType.Directory)  # others vanished during the scan
            and info.base_name.startswith(".") == hidden
        )
        return sorted(entries, key=lambda entry: entry.name)

    def missing(self, names: list[str]) -> list[str]:
        """Those of the files below that are not there."""
        try:
            infos = self.filesystem.get_file_info([f"{self.root}/{name}" for name in names])
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from error
        return [name for name, info in zip(names, infos, strict=True) if info.type == fs.FileType.NotFound]

    def unreadable(self, error: Exception) -> StoreError:
        return StoreError(
            f"{self.uri}: cannot be read ({error}); {'check the path' if self.local else _S3_HINT}"
        )
