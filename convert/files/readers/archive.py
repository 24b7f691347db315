"""Where the entries of a zip archive lie, for archives that hold no surprises.

Only entries that are stored as they are can be used: PyTorch compresses no data, so a compressed entry is not its
work, and nothing is ever expanded. An archive is refused as a whole if entries overlap, share a name, lie outside
it, are encrypted, or have names that lead out of a folder; or if anything lies before it: of two archives in one file,
some programs read the first and some the second.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import CheckpointError
from .common.limits import MAX_HEADER, MAX_TENSORS
from .common.stored import Source, Storage

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, lengths of the name and of the extra field
_ENCRYPTED, _UTF_8 = 0x1, 0x800  # flags of an entry
_OTHER_ENTRIES = 1000  # code, constants, versions: what is not a tensor
_ENTRY = 350  # bytes that the description of an entry takes


@dataclass(frozen=True)
class Archive:
    """The entries of an archive.

    Attributes:
        source: The file.
        entries: Where each entry's bytes lie, by name; None for a compressed one.
        alike: Names, in small letters, that several entries have; PyTorch takes one of these, whatever its case.
    """

    source: Source
    entries: dict[str, Storage | None]
    alike: frozenset[str]

    def storage(self, name: str) -> Storage:
        """Where an entry lies.

        Raises:
            CheckpointError: There is no such entry, or another whose name differs in case only, or it is compressed.
        """
        if name.lower() in self.alike:
            raise CheckpointError(f"{self.source.path} has two entries called {name[:100]!r} in different cases")
        if name not in self.entries:
            raise CheckpointError(f"{self.source.path} is damaged or incomplete: it lacks the entry {name!r}")
        storage = self.entries[name]
        if storage is None:
            raise CheckpointError(f"{self.source.path} has a compressed entry {name!r}, which PyTorch never writes")
        return storage

    def read(self, name: str, *, limit: int) -> bytes:
        """What an entry holds.

        Raises:
            CheckpointError: There is no such entry, it is compressed, or it is longer than ``limit`` bytes.
        """
        storage = self.storage(name)
        if storage.nbytes > limit or storage.start is None:
            raise CheckpointError(f"{self.source.path}: the entry {name!r} has more than {limit} bytes")
        return self.source.bytes(storage.start, storage.nbytes)

    def root(self, name: str) -> str | None:
        """The folder that the one entry ``folder/name`` lies in, with its slash, or None if there is no such entry.

        Raises:
            CheckpointError: There are several, or one whose name differs in case, or entries in other folders: PyTorch
                reads that of the first, or another form of what the archive holds.
        """
        found = [entry for entry in self.entries if entry.partition("/")[2].lower() == name]
        if len(found) > 1:
            raise CheckpointError(f"{self.source.path} has {len(found)} entries called {name!r}")
        if not found:
            return None
        folder = self._spelled(found.pop(), name).removesuffix(name)
        outside = next((entry for entry in self.entries if not entry.startswith(folder)), None)
        if outside is not None:
            raise CheckpointError(
                f"{self.source.path} has the entry {outside[:100]!r} outside of its folder {folder!r}"
            )
        return folder

    def check_byte_order(self, root: str) -> None:
        """Refuses an archive whose numbers are those of a big-endian machine.

        Raises:
            CheckpointError: It says so in the folder ``root``, or spells the entry's name in another case.
        """
        name = f"{root}byteorder"
        found = [self._spelled(entry, name) for entry in self.entries if entry.lower() == name.lower()]
        if found and self.read(name, limit=16) != b"little":
            raise CheckpointError(
                f"{self.source.path} was written on a big-endian machine; only little-endian files are read"
            )

    def _spelled(self, entry: str, name: str) -> str:
        """An entry that ends with a name; refuses one in another case, which PyTorch finds all the same."""
        if not entry.endswith(name):
            raise CheckpointError(f"{self.source.path} spells the entry {name!r} in another case: {entry[:100]!r}")
        return entry


def open_archive(source: Source) -> Archive:
    """Reads and checks the directory of a zip archive.

    Raises:
        CheckpointError: The archive is damaged, or as the module says.
    """
    try:
        with zipfile.ZipFile(_Window(source)) as archive:
            members, end = archive.infolist(), archive.start_dir
    except CheckpointError:
        raise
    except Exception as error:  # a damaged archive makes zipfile raise anything
        raise CheckpointError(f"{source.path} is damaged, incomplete or no zip archive") from error
    if len(members) > MAX_TENSORS + _OTHER_ENTRIES:
        raise CheckpointError(f"{source.path} has {len(members)} entries; at most {MAX_TENSORS} tensors are read")
    source.budget.spend(memory=_ENTRY * len(members))
    entries: dict[str, Storage | None] = {}
    if members and all(member.header_offset for member in members):
        raise CheckpointError(f"{source.path} does not begin with its archive's first entry: it may hold two archives")
    position = 0
    for member in sorted(members, key=lambda member: member.header_offset):
        _check_member(member, entries, source)
        start = _data_start(member, source)
        if member.header_offset < position or start + member.compress_size > end:
            raise CheckpointError(f"{source.path} has entries that overlap")
        position = start + member.compress_size
        is_stored = member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size
        entries[member.filename] = Storage(source, member.file_size, start) if is_stored else None
    return Archive(source, entries, _alike(entries))


def _alike(names: Iterable[str]) -> frozenset[str]:
    """The names, in small letters, that come more than once."""
    return frozenset(name for name, count in Counter(map(str.lower, names)).items() if count > 1)


def _check_member(member: zipfile.ZipInfo, entries: dict[str, Storage | None], source: Source) -> None:
    name = member.orig_filename
    if not name or len(name) >= 1024 or re.search(r"^/|\\|\0|(^|/)\.\.?(/|$)|^[A-Za-z]:", name):
        raise CheckpointError(f"{source.path} has an entry whose name leads out of its folder")
    if member.filename in entries:
        raise CheckpointError(f"{source.path} has two entries called {name[:100]!r}")
    if member.flag_bits & _ENCRYPTED:
        raise CheckpointError(f"{source.path} has an encrypted entry, {name[:100]!r}")


def _data_start(member: zipfile.ZipInfo, source: Source) -> int:
    """Where an entry's bytes begin: after its local header, which must name it too."""
    header = source.bytes(member.header_offset, _LOCAL_HEADER.size)
    signature, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    name_start = member.header_offset + _LOCAL_HEADER.size
    name = source.bytes(name_start, name_length)
    encoding = "utf-8" if member.flag_bits & _UTF_8 else "cp437"
    if signature != b"PK\3\4" or name.decode(encoding, "replace") != member.orig_filename:
        raise CheckpointError(f"{source.path} is damaged: an entry is not where its directory says")
    return int(name_start + name_length + extra_length)


class _Window(io.RawIOBase):
    """A mapped file for zipfile, which reads a directory in one piece, of whatever length the file declares."""

    def __init__(self, source: Source) -> None:
        self._source, self._position = source, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        if start + offset < 0:
            raise OSError("before the start of the file")
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        rest = max(self._source.size - self._position, 0)
        size = rest if size < 0 else min(size, rest)
        if size > MAX_HEADER:
            raise CheckpointError(f"{self._source.path} has a directory of over {MAX_HEADER} bytes")
        found = self._source.bytes(self._position, size) if size else b""
        self._position += size
        return found
