"""Read one struct of plain arrays from a MATLAB file (Level 5, what MATLAB writes up to v7), and nothing else.

A reader of our own: SciPy's ends the whole process on about one in a hundred files with a single wrong byte (1.17, also
scipy issue 6072), and a broken download must be a sentence. It knows numbers only; nothing in a file can be executed.
Format: MathWorks, "MAT-File Format", Level 5.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from capsbench.errors import DataError

LIMIT = 1 << 30  # bytes a compressed variable may unpack to: affNIST's 320,000 images are half of it
INT8, UINT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 2, 5, 6, 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = dict(enumerate(("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"), start=6))
STRUCT = 2
COMPLEX = 0x800

Field = NDArray[Any] | None


def read_struct(content: bytes, name: str, where: str) -> dict[str, Field]:
    """The fields of the 1 x 1 struct `name`, in their order; a field that is no full array of real numbers is None.

    content: the whole file. where: its name, for messages. Raises DataError when the file is truncated, is no Level 5
    file, holds no such struct or contradicts itself.
    """
    reader = _Reader(memoryview(content), where)
    if len(content) < 128 or content[126:128] not in (b"IM", b"MI"):
        reader.fail("it has no MATLAB Level 5 header")
    reader.order = "<" if content[126:128] == b"IM" else ">"
    if struct.unpack(reader.order + "H", content[124:126])[0] != 0x0100:
        reader.fail("it has another version than MATLAB Level 5; save it with -v7")
    reader.position = 128
    while reader.position < len(content):
        kind, data = reader.element()
        if kind == COMPRESSED:
            kind, data = reader.inside(_unpacked(data, reader)).element()
        if kind == MATRIX:
            array = reader.inside(data)
            flags, dimensions, found = array.head()
            if found == name:
                return _fields(array, flags & 0xFF, dimensions)
    return reader.fail(f"it holds no variable {name}")


def _fields(reader: _Reader, kind: int, dimensions: list[int]) -> dict[str, Field]:
    if kind != STRUCT or dimensions != [1, 1]:
        reader.fail("its variable is not a 1 x 1 struct")
    lengths = reader.numbers(INT32)
    length = int(lengths[0]) if len(lengths) == 1 else 0
    names = reader.expect(INT8).tobytes()
    if not 0 < length <= 64 or len(names) % length:
        reader.fail("its field names are damaged")
    fields: dict[str, Field] = {}
    for start in range(0, len(names), length):
        name = names[start : start + length].split(b"\0")[0].decode("latin-1")
        fields[name] = _array(reader.inside(reader.expect(MATRIX)))
    return fields


def _array(reader: _Reader) -> Field:
    if not len(reader.buffer):  # an empty field may be written as nothing at all
        return None
    flags, dimensions, _ = reader.head()
    if flags & 0xFF not in CLASSES or flags & COMPLEX:
        return None
    kind, data = reader.element()
    if kind not in STORED or len(data) % np.dtype(STORED[kind]).itemsize:
        reader.fail(f"an array is stored as unknown type {kind}")
    values = np.frombuffer(data, reader.order + STORED[kind])
    if len(values) != math.prod(dimensions):
        reader.fail(f"an array of {' x '.join(map(str, dimensions))} holds {len(values)} numbers")
    # MATLAB stores numbers as narrow as they fit; the class says what they are.
    return values.reshape(dimensions, order="F").astype(CLASSES[flags & 0xFF], copy=False)


def _unpacked(data: memoryview, reader: _Reader) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(data, LIMIT)
    except zlib.error as error:
        reader.fail(f"its compressed data are damaged ({error})")
    if not unpacker.eof:
        reader.fail(f"its compressed data are truncated or more than {LIMIT:,} bytes")
    return content


class _Reader:
    """Steps through the elements of a buffer; every length is held against what is there."""

    def __init__(self, buffer: memoryview, where: str, order: str = "<") -> None:
        self.buffer, self.where, self.order, self.position = buffer, where, order, 0

    def inside(self, buffer: bytes | memoryview) -> _Reader:
        """A reader of what an element holds."""
        return _Reader(memoryview(buffer), self.where, self.order)

    def fail(self, reason: str) -> NoReturn:
        raise DataError(
            f"{self.where} cannot be read as affNIST's MATLAB file: {reason}; "
            "get the original file again, or take it away to use the synthetic set."
        )

    def element(self) -> tuple[int, memoryview]:
        """The next element's type and data."""
        left = len(self.buffer) - self.position
        if left < 8:
            self.fail("it is truncated")
        kind, size = struct.unpack_from(self.order + "II", self.buffer, self.position)
        start = self.position + 8
        if kind >> 16:  # a small element: type, size and up to 4 bytes of data in one word pair
            kind, size, start = kind & 0xFFFF, kind >> 16, start - 4
            if size > 4:
                self.fail("a small element is damaged")
        if start + size > len(self.buffer):
            self.fail("it is truncated")
        padding = 0 if kind == COMPRESSED else -(start + size) % 8
        self.position = start + size + padding
        return kind, self.buffer[start : start + size]

    def expect(self, kind: int) -> memoryview:
        """The data of the next element, which must be of type `kind`."""
        found, data = self.element()
        if found != kind:
            self.fail(f"an element has type {found} where {kind} belongs")
        return data

    def numbers(self, kind: int) -> NDArray[Any]:
        """The next element as whole numbers."""
        data = self.expect(kind)
        if len(data) % 4:
            self.fail("a list of numbers is damaged")
        return np.frombuffer(data, self.order + STORED[kind])

    def head(self) -> tuple[int, list[int], str]:
        """An array's flags, dimensions and name."""
        flags, dimensions = self.numbers(UINT32), self.numbers(INT32).tolist()
        if len(flags) != 2 or not 2 <= len(dimensions) <= 8 or min(dimensions) < 0:
            self.fail("an array's header is damaged")
        return int(flags[0]), dimensions, self.expect(INT8).tobytes().decode("latin-1")
