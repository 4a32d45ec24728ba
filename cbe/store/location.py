"""A place that holds files: a local folder, or a bucket and prefix as `cbe.clouds` has them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from cbe.clouds import Cloud, cloud_of, open_address, reason
from cbe.errors import RunError, StoreError
from cbe.files import create_file, name_aside, replace_file
from cbe.store import conditional


@dataclass(frozen=True)
class Entry:
    name: str
    size: int
    modified_s: float  # since 1970
    is_folder: bool

    @property
    def hidden(self) -> bool:
        return self.name.rpartition("/")[2].startswith(".")


@dataclass(frozen=True)
class Location:
    """Files are written whole or not at all; names beginning with a dot are files in the making."""

    filesystem: fs.FileSystem
    root: str
    bucket: str = ""  # its address; the root begins with its name
    query: str = ""

    @classmethod
    def open(cls, uri: str) -> Location:
        """Reads an address; nothing is made there."""
        if "://" not in uri:
            return cls(fs.LocalFileSystem(), str(Path(uri).expanduser().resolve()))
        address = open_address(uri, "store")
        return cls(address.filesystem, address.path, address.bucket, address.query)

    @property
    def cloud(self) -> Cloud | None:
        return cloud_of(self.bucket)

    @property
    def local(self) -> bool:
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def writes_aside(self) -> bool:
        """Whether a file in the making is a hidden one beside it."""
        return self.local or (self.cloud is not None and not self.cloud.writes_whole)

    @property
    def uri(self) -> str:
        if self.local:
            return self.root
        _, slash, prefix = self.root.partition("/")
        return f"{self.bucket}{slash}{quote(prefix)}" + (f"?{self.query}" if self.query else "")

    def at(self, relative: str) -> Location:
        """The place below; refuses what would lead out of this one."""
        parts = PurePosixPath(relative).parts
        if not parts or relative.startswith("/") or ".." in parts or "\\" in relative or "\0" in relative:
            raise ValueError(f"{relative!r} is not a path below a study")
        return replace(self, root="/".join([self.root.rstrip("/"), *parts]))

    def read(self) -> bytes | None:
        """The file that is here, if there is one."""
        try:
            with self._opened() as file:
                content: bytes = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from error
        return content

    def _opened(self) -> pa.NativeFile:
        if self.cloud and self.cloud.streams:
            return self.filesystem.open_input_stream(self.root, compression=None)
        return self.filesystem.open_input_file(self.root)  # a stream would be read in little pieces

    def write(self, content: bytes) -> None:
        try:
            if self.local:
                replace_file(Path(self.root), lambda file: file.write(content))
            elif self.writes_aside:
                self._replace(content)
            else:
                self._put(self.root, content)
        except (pa.ArrowException, OSError) as error:
            raise self._unwritable(error) from error

    def create(self, content: bytes) -> bool:
        """Puts a whole file here where there is none; False where there is one.

        Of several that try at once, on whatever machines, one succeeds.
        """
        if not self.local and not conditional.is_possible(self.bucket, self.query):
            if self.read() is not None:
                return False
            self.write(content)
            return True
        try:
            if self.local:
                return create_file(Path(self.root), lambda file: file.write(content))
            return conditional.create(self.bucket, self.query, self.root.partition("/")[2], content)
        except (conditional.ERRORS, OSError) as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: Exception) -> RunError:
        hint = self.cloud.hint if self.cloud else "free some space, or check who may write there"
        return RunError(f"{self.uri}: could not be written ({reason(error)}); {hint}")

    def _put(self, path: str, content: bytes) -> None:
        with self.filesystem.open_output_stream(path, compression=None) as stream:
            stream.write(content)

    def _replace(self, content: bytes) -> None:
        """By a copy within the cloud, which takes the place of what is there in one step."""
        above, _, name = self.root.rpartition("/")
        aside = f"{above}/{name_aside(name)}"
        try:
            self._put(aside, content)
            self.filesystem.copy_file(aside, self.root)
        finally:
            with suppress(pa.ArrowException, OSError):  # what stays is swept later
                self.filesystem.delete_file(aside)

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
            raise RunError(
                f"{self.uri}: could not be deleted ({reason(error)}); delete it by hand"
            ) from error

    def entries(self, *, hidden: bool = False, recursive: bool = False, folders: bool = True) -> list[Entry]:
        """What is below, by name; nothing where there is no such folder.

        Where a cloud's listing names no folders, all that they hold is listed: leave them out if you can.
        """
        deep = folders and self.cloud is not None and not self.cloud.lists_folders
        selector = fs.FileSelector(self.root, allow_not_found=True, recursive=recursive or deep)
        try:
            found = self.filesystem.get_file_info(selector)
        except FileNotFoundError:  # the folder came into being between two looks at it
            return []
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from error
        entries = [
            Entry(
                info.path.removeprefix(self.root).strip("/"),
                info.size or 0,
                (info.mtime_ns or 0) / 1e9,
                info.type == fs.FileType.Directory,
            )
            for info in found
            if info.type in (fs.FileType.File, fs.FileType.Directory)  # others vanished during the scan
        ]
        if deep and not recursive:
            entries = _direct(entries)
        wanted = (entry for entry in entries if entry.hidden == hidden and (folders or not entry.is_folder))
        return sorted(wanted, key=lambda entry: entry.name)

    def missing(self, names: list[str]) -> list[str]:
        """Those of the files below that are not there."""
        try:
            infos = self.filesystem.get_file_info([f"{self.root}/{name}" for name in names])
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from error
        return [name for name, info in zip(names, infos, strict=True) if info.type == fs.FileType.NotFound]

    def unreadable(self, error: Exception) -> StoreError:
        hint = self.cloud.hint if self.cloud else "check the path"
        return StoreError(f"{self.uri}: cannot be read ({reason(error)}); {hint}")


def _direct(entries: Iterable[Entry]) -> list[Entry]:
    """Of all that is below, what is directly there: files, and folders that are named by what they hold."""
    found: dict[str, Entry] = {}
    for entry in entries:
        name, below, _ = entry.name.partition("/")
        found[name] = Entry(name, 0, 0.0, is_folder=True) if below else entry
    return list(found.values())
