"""Opens zip and gzip files within limits. Extracts nothing to disk by name, and unpacks no more than it may."""

import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import BinaryIO

from portico.errors import SourceError
from portico.sources.fetch import inflate
from portico.sources.records import Document

MAX_MEMBERS = 10_000
MAX_RATIO = 200  # of a large member to its packed size; a text seldom packs to less than a twentieth
_SMALL = 16 << 20  # members below it may be packed as tightly as they like
_CHUNK = 256 * 1024
_ENCRYPTED = 0x1
_LINK = 0o120000
_HEAD = 1024
BROKEN = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, RuntimeError)


@contextmanager
def open_zip(document: Document, max_bytes: int) -> Generator[zipfile.ZipFile]:
    """Open a zip archive. Raise SourceError if it is damaged, or too large once it is unpacked."""
    try:
        document.file.seek(0)
        archive = zipfile.ZipFile(document.file)
    except BROKEN as problem:
        raise SourceError(f"{document.name} is not a readable zip file: {problem}") from problem
    with archive:
        _check_sizes(archive, document.name, max_bytes)
        yield archive


@contextmanager
def open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Generator[Document]:
    """Unpack a member into a nameless temporary file. A member that is larger than it declares is damaged."""
    with tempfile.TemporaryFile() as file:
        try:
            with archive.open(member) as packed:
                while chunk := packed.read(_CHUNK):
                    file.write(chunk)
        except BROKEN as problem:
            raise SourceError(f"{member.filename} cannot be unpacked: {problem}") from problem
        file.seek(0)
        yield Document(file, member.filename)


@contextmanager
def open_gzip(document: Document, max_bytes: int) -> Generator[Document]:
    """Unpack a gzip file into a temporary file, which is named and addressed as the packed one is."""
    with tempfile.TemporaryFile() as file:
        _unpack_gzip(document, file, max_bytes)
        yield Document(file, document.name.removesuffix(".gz"), document.url)


def list_files(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the regular files of an archive in order, without hidden ones and those of a system."""
    return sorted(filter(_is_visible, archive.infolist()), key=lambda member: member.filename)


def problem_with(member: zipfile.ZipInfo) -> str:
    """Return why a member is not read, or an empty text."""
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.as_posix().split("/")[0]:
        return "has a path that leads out of the archive"
    return "is encrypted" if member.flag_bits & _ENCRYPTED else ""


def read_part(archive: zipfile.ZipFile, name: str, max_bytes: int) -> bytes | None:
    """Return an XML part of an office document, or None if it has no such part."""
    try:
        member = archive.getinfo(name)
    except KeyError:
        return None
    if member.file_size > max_bytes:
        raise SourceError(f"{name} is larger than {max_bytes >> 20} MB.")
    try:
        return archive.read(member)
    except BROKEN as problem:
        raise SourceError(f"{name} cannot be unpacked: {problem}") from problem


def read_head(archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> bytes:
    """Return the first bytes of a member. Raise SourceError if it is damaged."""
    try:
        with archive.open(member) as part:
            return part.read(size)
    except BROKEN as problem:
        raise SourceError(f"{member.filename} cannot be unpacked: {problem}") from problem


def refuse_doctypes(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse an office document with declarations of XML entities, which its format does not allow."""
    for member in archive.infolist():
        is_xml = member.filename.endswith((".xml", ".rels"))
        if is_xml and b"<!DOCTYPE" in read_head(archive, member, _HEAD).replace(b"\x00", b""):
            raise SourceError(f"{name} declares XML entities in {member.filename}, which are not read.")


def _check_sizes(archive: zipfile.ZipFile, name: str, max_bytes: int) -> None:
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise SourceError(f"{name} holds more than {MAX_MEMBERS:,} files.")
    if sum(member.file_size for member in members) > max_bytes:
        raise SourceError(f"{name} is larger than {max_bytes:,} bytes once it is unpacked.", limit=max_bytes)
    for member in members:
        if member.file_size > max(_SMALL, member.compress_size * MAX_RATIO):
            reason = f"unpacks to more than {MAX_RATIO} times its size"
            raise SourceError(f"{member.filename} in {name} {reason}.", hint="Unpack it, and load the file.")


def _unpack_gzip(document: Document, file: BinaryIO, max_bytes: int) -> None:
    size = 0
    try:
        for chunk in inflate(_chunks(document)):
            size += len(chunk)
            if size > max_bytes:
                raise SourceError(f"{document.name} is larger than {max_bytes:,} bytes once it is unpacked.")
            file.write(chunk)
    except zlib.error as problem:
        raise SourceError(f"{document.name} is not a readable gzip file: {problem}") from problem
    file.seek(0)


def _chunks(document: Document) -> Iterator[bytes]:
    document.file.seek(0)
    while chunk := document.file.read(_CHUNK):
        yield chunk


def _is_visible(member: zipfile.ZipInfo) -> bool:
    parts = PurePosixPath(member.filename).parts
    is_link = (member.external_attr >> 16) & 0o170000 == _LINK
    is_hidden = any((part.startswith(".") and part != "..") or part == "__MACOSX" for part in parts)
    return not (member.is_dir() or is_link or is_hidden)
