"""Opens documents: files on disk, files in a folder, downloads. Never follows a link out of a folder."""

import os
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from portico.errors import SourceError
from portico.sources.fetch import Fetcher
from portico.sources.records import Document


@contextmanager
def open_file(path: Path, name: str) -> Generator[Document]:
    try:
        file = path.open("rb")
    except OSError as problem:
        raise SourceError(f"{name} cannot be read: {problem.strerror}", path=str(path)) from problem
    with file:
        yield Document(file, name)


@contextmanager
def download(url: str, fetcher: Fetcher) -> Generator[Document]:
    """The file behind a URL, in a temporary file that is gone afterwards. The fetcher bounds its size."""
    with tempfile.TemporaryFile() as file:
        with fetcher.open(url) as answer:
            answer.expect_ok()
            document = Document(file, answer.url, answer.url, answer.content_type)
            for chunk in answer.chunks:
                file.write(chunk)
        file.seek(0)
        yield document


def files_below(root: Path) -> Iterator[Path]:
    """The ordinary files of a folder in order, without hidden ones and without links that lead outside."""
    inside = root.resolve()
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder) / name
            if not name.startswith(".") and path.is_file() and path.resolve().is_relative_to(inside):
                yield path
