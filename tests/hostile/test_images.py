"""Images are read as carefully as checkpoints: nothing in them runs, expands, hangs or takes memory on its own word."""

from __future__ import annotations

import os
import pickle
import resource
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from conv2attn.convert.errors import ConversionError
from conv2attn.learn.data.pictures import read_picture
from conv2attn.proofs.evidence import image_folder
from conv2attn.proofs.evidence.image_folder import read_images
from tests.hostile.measuring import Measure, measuring

MEMORY, SECONDS = 2**29, 60  # beyond the imports; the old code took 1.7 GB, or never ended

# Takes a folder and a number of channels, after a colon: of the images in it, or of its one picture, without a number.
READ = f"""
import os, signal
from pathlib import Path
from PIL import Image
from conv2attn.convert.errors import ConversionError
from conv2attn.learn.data.pictures import read_picture
from conv2attn.proofs.evidence.image_folder import read_images

def work(line):
    folder, _, channels = line.rpartition(":")
    os.chdir(folder)
    signal.alarm({SECONDS})
    try:
        if channels:
            return f"read {{list(read_images(Path('images'), channels=int(channels)).shape)}}"
        return f"read {{list(read_picture(next(Path('images').iterdir()), 3).shape)}}"
    except ConversionError as error:
        return repr(str(error))
"""


@pytest.fixture(scope="module")
def reading() -> Iterator[Measure]:
    """Reads in a process of its own: the old code hung, or took all memory, in several of these."""
    with measuring(READ) as measure:
        yield measure


def header(text: bytes, length: int | None = None) -> bytes:
    """The beginning of an .npy file."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) if length is None else length) + text


def shaped(shape: str, descr: str = "'<f4'") -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode())


def npy(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "x.npy").write_bytes(content)


def tensor(value: object) -> Callable[[Path], object]:
    return lambda folder: torch.save(value, folder / "x.pt")


class Runs:
    """Runs when a pickle that holds it is loaded."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch RAN",)


def pickled_array(folder: Path) -> None:
    np.save(folder / "x.npy", np.array([Runs()], dtype=object), allow_pickle=True)


def pickle_named_array(folder: Path) -> None:
    (folder / "x.npy").write_bytes(pickle.dumps(Runs()))


def deflated(folder: Path) -> None:
    """A tensor of 768 MB of zeros, which deflate holds in less than one."""
    torch.save(torch.zeros(2), "small.pt")
    with zipfile.ZipFile("small.pt") as small, zipfile.ZipFile(folder / "x.pt", "w", zipfile.ZIP_DEFLATED) as bomb:
        for name in small.namelist():
            with bomb.open(name, "w", force_zip64=True) as entry:
                if name.endswith("data/0"):
                    for _ in range(48):
                        entry.write(bytes(2**24))
                else:
                    entry.write(small.read(name))


def pipe(name: str) -> Callable[[Path], object]:
    return lambda folder: os.mkfifo(folder / name)


def device(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).symlink_to("/dev/zero")


def png(width: int, height: int, rows: int) -> bytes:
    """A PNG file that says how large it is, and has some rows of zeros."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    size = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n" + size + chunk(b"IDAT", zlib.compress(bytes((3 * width + 1) * rows))) + chunk(b"IEND", b"")
    )


def picture(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "x.png").write_bytes(content)


def sparse(folder: Path) -> None:
    """A file of 600 MB that takes no room on the disk; its numbers would take 2.4 GB."""
    with (folder / "x.npy").open("wb") as file:
        file.write(shaped("(20000, 3, 100, 100)", "'|u1'"))
        file.truncate(6 * 10**8 + 1000)


POSTSCRIPT = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(RAN) (w) file closefile showpage\n%%EOF\n"
)

REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shape beyond the file": (npy(shaped("(3, 100000, 100000)")), "is not an array of numbers"),
    "a shape that overflows": (npy(shaped(f"({2**62}, {2**62}, 4)")), "is not an array of numbers"),
    "a negative shape": (npy(shaped("(-3, 4, 4)")), "is not an array of numbers"),
    "a shape of texts": (npy(shaped("('a', 4, 4)")), "is not an array of numbers"),
    "a deep header": (npy(header(b"(" * 9000)), "is not an array of numbers"),
    "a long header": (npy(header(b"{" + b" " * 60000)), "is not an array of numbers"),
    "a header of 4 GB": (npy(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), "is not an array of numbers"),
    "an array of objects": (pickled_array, "is not an array of numbers"),
    "a pickle that is called an array": (pickle_named_array, "is not an array of numbers"),
    "an array of records": (npy(shaped("(3,)", "[('a', '<f4')]") + bytes(12)), "is not an array of numbers"),
    "an array of texts": (npy(shaped("(3,)", "'<U1'") + bytes(12)), "is not an array of numbers"),
    "complex numbers": (npy(shaped("(3, 1, 1)", "'<c8'") + bytes(24)), "holds complex numbers"),
    "no image at all": (npy(shaped("(0, 3, 4, 4)")), "no"),
    "a large file of holes": (sparse, "have more than"),
    "a tensor with stride 0": (tensor(torch.zeros(1).expand(3, 50000, 50000)), "its storage has only 4 bytes"),
    "a tensor that is deflated": (deflated, "compressed"),
    "a pickle that runs": (tensor(Runs()), "not a dense, plain tensor"),
    "a sparse tensor": (tensor(torch.zeros(3, 4, 4).to_sparse()), "tensor"),
    "tensors in a list": (tensor([torch.zeros(3, 4, 4)]), "not a dense, plain tensor"),
    "complex tensors": (tensor(torch.zeros(3, 4, 4, dtype=torch.complex64)), "holds complex numbers"),
    "a pipe of arrays": (pipe("x.npy"), "is not a plain file"),
    "a pipe of tensors": (pipe("x.pt"), "is not a plain file"),
    "a pipe of pictures": (pipe("x.png"), "is not a plain file"),
    "a device of arrays": (device("x.npy"), "is not a plain file"),
    "a device of pictures": (device("x.jpg"), "is not a plain file"),
    "a folder of a picture's name": (lambda folder: (folder / "x.png").mkdir(), "is not a plain file"),
    "a link to itself": (lambda folder: (folder / "x.png").symlink_to("x.png"), "file"),
    "a picture of a billion pixels": (picture(png(40000, 30000, 10)), "too many pixels"),
    "a picture a little too large": (picture(png(8193, 8192, 10)), "too many pixels"),
    "a picture of one row and column more than the largest": (picture(png(5793, 5793, 10)), "too many pixels"),
    "a picture that is cut": (picture(png(64, 64, 64)[:-20]), "cannot be read"),
    "a program for a printer": (picture(POSTSCRIPT), "is not a picture of a kind that is read"),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_image_is_refused_in_one_sentence(name: str, reading: Measure) -> None:
    make, reason = REFUSED[name]
    make(Path("images"))
    grown, _, found = reading(f"{Path.cwd()}:3")
    assert reason in found
    assert "\\n" not in found
    assert grown < MEMORY
    assert not Path("RAN").exists()


@pytest.mark.parametrize("name", [name for name in REFUSED if "picture" in name])
def test_a_hostile_picture_that_is_to_be_shown_is_refused_as_one_of_a_folder(name: str, reading: Measure) -> None:
    make, reason = REFUSED[name]
    make(Path("images"))
    grown, _, found = reading(f"{Path.cwd()}:")
    assert reason in found
    assert grown < MEMORY


FITTING: dict[str, Callable[[Path], object]] = {
    "array": lambda folder: np.save(folder / "x.npy", np.arange(96, dtype=np.float64).reshape(3, 4, 8)),
    "Fortran's order": lambda folder: np.save(folder / "x.npy", np.asfortranarray(np.arange(96.0).reshape(3, 4, 8))),
    "bytes": lambda folder: np.save(folder / "x.npy", np.arange(96, dtype=np.uint8).reshape(1, 3, 4, 8)),
    "tensor": lambda folder: torch.save(torch.arange(96.0).view(3, 4, 8), folder / "x.pt"),
    "half": lambda folder: torch.save(torch.arange(96.0).view(3, 4, 8).half(), folder / "x.pt"),
    "transposed": lambda folder: torch.save(torch.arange(96.0).view(3, 4, 8).mT.contiguous().mT, folder / "x.pt"),
    "parameter": lambda folder: torch.save(torch.nn.Parameter(torch.arange(96.0).view(3, 4, 8)), folder / "x.pt"),
}


@pytest.mark.parametrize("name", FITTING)
def test_images_are_read_number_by_number(name: str) -> None:
    FITTING[name](Path("images"))
    found = read_images(Path("images"), channels=3)
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.arange(96.0).view(1, 3, 4, 8))


def test_several_files_are_one_batch_in_the_order_of_their_names() -> None:
    parts: list[Tensor] = [torch.randn(2, 3, 4, 5), torch.randn(3, 4, 5), torch.randn(1, 3, 4, 5)]
    for name, part in zip("abc", parts, strict=True):
        torch.save(part, Path("images", f"{name}.pt"))
    assert torch.equal(read_images(Path("images"), channels=3), torch.cat([parts[0], parts[1][None], parts[2]]))


def test_numbers_of_all_images_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        np.save(Path("images", name), np.zeros((3, 4, 4)))
    monkeypatch.setattr(image_folder, "MOST_NUMBERS", 96)
    assert len(read_images(Path("images"), channels=3)) == 2
    monkeypatch.setattr(image_folder, "MOST_NUMBERS", 95)
    with pytest.raises(ConversionError, match="have more than 95 numbers"):
        read_images(Path("images"), channels=3)


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_a_picture_of_deep_colours_is_refused_and_not_clipped(mode: str) -> None:
    suffix = {"I;16": "png", "I": "pgm", "F": "pfm"}[mode]
    Image.new(mode, (4, 4)).save(f"deep.{suffix}")
    with pytest.raises(ConversionError, match="more than 8 bits"):
        read_picture(Path(f"deep.{suffix}"), 1)


@pytest.mark.parametrize(("kind", "mode"), [("png", "RGB"), ("webp", "RGBA"), ("jpeg", "RGB"), ("gif", "P")])
def test_the_largest_pictures_are_read_in_the_memory_that_is_promised(kind: str, mode: str, reading: Measure) -> None:
    options = {"lossless": True} if kind == "webp" else {}
    Image.new(mode, (5792, 5792)).save("large", kind, **options)
    Path("large").rename("images/large.png")  # which kind it is, its content says
    channels = 4 if mode == "RGBA" else 3
    grown, _, found = reading(f"{Path.cwd()}:{channels}")
    assert found == f"read [1, {channels}, 5792, 5792]"
    assert grown < 5 * 2**28


def test_more_images_than_files_can_be_open_are_read() -> None:
    for number in range(300):
        np.save(Path("images", f"{number}.npy"), np.full((3, 1, 1), number, np.float32))
        torch.save(torch.full((2, 3, 1, 1), number), Path("images", f"{number}.pt"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        assert read_images(Path("images"), channels=3).shape == (900, 3, 1, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_time_of_many_images_is_linear_in_their_number() -> None:
    """Their numbers were counted anew for each of them."""
    content = shaped("(3, 1, 1)") + bytes(12)

    def seconds(count: int) -> float:
        for number in range(count):
            Path("images", f"{number}.npy").write_bytes(content)
        before = time.process_time()
        assert len(read_images(Path("images"), channels=3)) == count
        return time.process_time() - before

    short = seconds(1000)
    assert seconds(8000) < 16 * short  # 64 times, if it were quadratic


def tile(side: int) -> bytes:
    """A TIFF file of 8x8 pixels in one deflated tile of so many rows and columns."""
    squeeze = zlib.compressobj()
    data = b"".join(squeeze.compress(bytes(3 * side)) for _ in range(side)) + squeeze.flush()
    tags = {256: 8, 257: 8, 259: 8, 262: 2, 277: 3, 284: 1, 322: side, 323: side, 325: len(data)}
    start = 8 + 2 + 12 * (len(tags) + 2) + 4
    entries = {tag: (4, 1, value) for tag, value in tags.items()} | {258: (3, 3, start), 324: (4, 1, start + 6)}
    directory = b"".join(struct.pack("<HHII", tag, *entries[tag]) for tag in sorted(entries))
    head = struct.pack("<2sHIH", b"II", 42, 8, len(entries))
    return head + directory + bytes(4) + struct.pack("<3H", 8, 8, 8) + data


def test_a_picture_of_few_pixels_in_one_huge_tile_is_refused(reading: Measure) -> None:
    """It took 0.8 GB in the libraries below Pillow, which looks at the size of the picture alone."""
    Path("small.png").write_bytes(tile(64))
    with Image.open("small.png") as opened:
        assert opened.size == (8, 8)
        opened.load()
    Path("images", "x.png").write_bytes(tile(16384))
    grown, _, found = reading(f"{Path.cwd()}:3")
    assert "is not a picture of a kind that is read" in found
    assert grown < MEMORY


def test_a_picture_of_many_scans_is_refused() -> None:
    """Each takes few bytes, and goes through all pixels."""
    Image.new("RGB", (2000, 2000)).save("images/x.jpg", progressive=True)
    assert read_images(Path("images"), channels=3).shape == (1, 3, 2000, 2000)
    content = Path("images/x.jpg").read_bytes()
    scan = content[content.rindex(b"\xff\xda") : -2]
    Path("images/x.jpg").write_bytes(content[:-2] + 100_000 * scan + b"\xff\xd9")
    before = time.process_time()
    with pytest.raises(ConversionError, match="in more scans than any program writes"):
        read_images(Path("images"), channels=3)
    assert time.process_time() - before < 5
