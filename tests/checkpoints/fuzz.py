"""Mutated files of every format, read in a child process: only our own errors, within a second, and little memory.

`run(format, count, folder)` starts the child; as a script this file is the child. Mutation i of a format is a function of
its name and i alone, so a fault that is found is found again by its number: `python fuzz.py gguf 1234 1 FOLDER`.
"""

import gc
import json
import os
import random
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SECONDS, EXTRA_BYTES = 1.0, 64 * 2**20
EXTREMES = [
    0,
    1,
    2,
    31,
    127,
    255,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
]


@dataclass(frozen=True)
class Format:
    """The name that a file of the format has, how valid ones are made, and what reads them to the last number."""

    file_name: str
    seeds: Callable[[Path], list[bytes]]
    read: Callable[[Path], object]
    is_text: bool = False


def run(name: str, count: int, folder: Path, *, first: int = 0) -> dict[str, int]:
    """Reads `count` mutations; gives how many were read and refused. Raises: AssertionError listing what went wrong."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, __file__, name, str(first), str(count), str(folder)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    lines = found.stdout.splitlines()
    at = (folder / "at").read_text() if (folder / "at").exists() else "none"
    assert found.returncode == 0, (
        f"{name}: the child ended with {found.returncode} at mutation {at}: {found.stderr[-800:]}"
    )
    result = json.loads(lines[-1])
    assert result["faults"] == [], f"{name}: {result['faults']}"
    return {"read": result["read"], "refused": result["refused"]}


def mutations(seeds: list[bytes], name: str, index: int, *, is_text: bool) -> bytes:
    """The mutation with this number."""
    draw = random.Random(f"{name} {index}")
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        # the front holds what a reader believes; the rest are numbers
        reach = draw.choice((min(64, len(data)), min(600, len(data)), len(data)))
        at = draw.randrange(reach) if reach else 0
        match draw.randrange(8):
            case 0 if data:
                data[at] ^= 1 << draw.randrange(8)
            case 1 if data:
                data[at] = draw.randrange(256)
            case 2:
                del data[draw.randrange(len(data) + 1) :]
            case 3:
                data[at : at + draw.randrange(1, 40)] = b""
            case 4:
                other = draw.choice(seeds)
                begin = draw.randrange(len(other) or 1)
                data[at:at] = other[begin : begin + draw.randrange(1, 200)]
            case 5:
                begin = draw.randrange(len(data) or 1)
                data[at : at + 8] = data[begin : begin + 8]
            case _ if is_text:
                digits = [i for i, byte in enumerate(data) if 48 <= byte < 58]
                if digits:
                    data[(i := draw.choice(digits)) : i + 1] = str(draw.choice(EXTREMES)).encode()
            case _:
                width = draw.choice("BHIQ")
                size = struct.calcsize(width)
                data[at : at + size] = struct.pack(f"<{width}", draw.choice(EXTREMES) % (1 << 8 * size))
    return bytes(data)


def _faults(form: Format, name: str, first: int, count: int, folder: Path) -> Iterator[str]:
    from unembed.errors import UnembedError

    seeds = form.seeds(folder)
    path = folder / form.file_name
    for seed in seeds:  # what a valid file needs is no fault, and imports happen here
        path.write_bytes(seed)
        form.read(path)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (folder / "at").open("w") as progress:
        for index in range(first, first + count):
            data = mutations(seeds, name, index, is_text=form.is_text)
            os.pwrite(progress.fileno(), f"{index:<12}".encode(), 0)
            path.unlink()  # a new file: ext4 puts one that is cut and written again on the disk at once, which takes longer
            path.write_bytes(data)
            start = time.process_time()
            try:
                form.read(path)
                yield "read"
            except UnembedError as error:
                message = str(error)
                bad = len(message.splitlines()) > 6 or len(message) > 1500
                yield f"{index}: a message of {len(message)} characters: {message[:80]}" if bad else "refused"
            except BaseException as error:  # a panic of a library in Rust is no Exception
                yield f"{index}: {type(error).__name__}: {str(error)[:120]}"
            if (seconds := time.process_time() - start) > SECONDS:
                yield f"{index}: {seconds:.1f} s"
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
            if grown > EXTRA_BYTES + len(data):
                yield f"{index}: {grown / 2**20:.0f} MiB more than before"
                before += grown // 1024


def main(name: str, first: int, count: int, folder: Path) -> None:
    """Reads the mutations and prints the counts and the first faults."""
    from checkpoints.fuzz_formats import FORMATS

    # a gigabyte for the libraries' own mappings: what asks for more than that is stopped, and seen as a MemoryError
    resource.setrlimit(resource.RLIMIT_AS, (int(os.environ.get("FUZZ_AS_GIB", "6")) * 2**30, resource.RLIM_INFINITY))
    read = refused = 0
    faults: list[str] = []
    for said in _faults(FORMATS[name], name, first, count, folder):
        read += said == "read"
        refused += said == "refused"
        if said not in ("read", "refused") and len(faults) < 12:
            faults.append(said)
    sys.stdout.write(json.dumps({"read": read, "refused": refused, "faults": faults}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
