"""How fast text becomes shards, and in how much memory: ours against the bare `tokenizers` library.

The claims: reading 1 GB of generated text into shards stays below 500 MB of memory, and reaches at least 0.8 of the bare
library's speed. Bare means: the same trained vocabulary, the same threads, the file read in blocks, cut at line ends into
stretches of 64 kB, given to `encode_batch_fast`, the ids thrown away: no decoding of a document's end, no 16-bit file, no
hash, no manifest. Ours does all of that, and reads the file twice, since the split needs its length.

The contenders take turns on a smaller file, so that the machine's other work falls on both; the ratio of processor time
(all threads) stands beside that of the clock, because it does not move with that work. Memory is that of one process that
encodes the whole file.

    python bench/encode.py --megabytes 1000 --json bench/results/encode.json
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import tokenizers
from unembed.corpora.encode import encode_corpus
from unembed.corpora.text import TextReader
from unembed.tokenizers.files import load, save
from unembed.tokenizers.training import train_bpe

STRETCH = 1 << 16
BATCH = 1 << 22
CLAIMED_SHARE, CLAIMED_BYTES = 0.8, 500e6


def write_text(path: Path, n_bytes: int, seed: int) -> None:
    """Writes generated text: words of random letters, Zipf-distributed, in sentences and lines, some Korean and Spanish."""
    draw = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz" + "áéíóúñ" + "".join(chr(0xAC00 + 28 * i) for i in range(20))
    weights = [1 / (rank + 2) for rank in range(len(letters))]
    words = ["".join(draw.choices(letters, weights, k=draw.randint(1, 11))) for _ in range(50_000)]
    totals = [0.0]
    for rank in range(len(words)):
        totals.append(totals[-1] + 1 / (rank + 1))
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < n_bytes:
            chosen = draw.choices(words, cum_weights=totals[1:], k=20_000)
            lines = (" ".join(chosen[i : i + 14]).capitalize() + ".\n" for i in range(0, len(chosen), 14))
            text = "".join(lines)
            written += len(text.encode())
            file.write(text)


def blocks(path: Path) -> Iterator[list[str]]:
    """The file in lists of stretches that end with a line, about four million characters a list."""
    with path.open(encoding="utf-8") as file:
        while lines := file.readlines(BATCH):
            stretches, held, size = [], [], 0
            for line in lines:
                held.append(line)
                size += len(line)
                if size >= STRETCH:
                    stretches.append("".join(held))
                    held, size = [], 0
            yield [*stretches, "".join(held)]


def bare(path: Path, folder: Path) -> tuple[float, float]:
    """Seconds of the library alone: by the clock, and of the processor."""
    engine = tokenizers.Tokenizer.from_str(json.dumps(json.loads((folder / "tokenizer.json").read_text())["engine"]))
    started = time.perf_counter(), time.process_time()
    for block in blocks(path):
        engine.encode_batch_fast(block, add_special_tokens=False)
    return time.perf_counter() - started[0], time.process_time() - started[1]


def ours(path: Path, folder: Path) -> tuple[float, float]:
    """Seconds from the file to open shards: by the clock, and of the processor."""
    tokenizer = load(folder)
    target = folder / "shards"
    started = time.perf_counter(), time.process_time()
    encode_corpus(TextReader(path), tokenizer, target)
    seconds = time.perf_counter() - started[0], time.process_time() - started[1]
    shutil.rmtree(target)
    return seconds


def peak_bytes() -> int:
    """The most memory that this process has held. Not ru_maxrss: that begins with the memory of the parent process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> int:
    """Runs the rounds, then the process whose memory is measured; exit code 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--megabytes", type=int, default=1000, help="size of the text whose encoding is measured for memory"
    )
    parser.add_argument(
        "--round-megabytes", type=int, default=16, help="size of the text that contenders take turns on"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        seconds, _ = ours(*options.child)
        print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes()}))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "round.txt", options.round_megabytes * 10**6, seed=1)
        save(train_bpe(TextReader(folder / "round.txt").blocks(), vocab_size=8192, budget=1 << 22), folder)
        shares = []
        for number in range(options.rounds):
            order = (bare, ours) if number % 2 else (ours, bare)
            taken = {contender.__name__: contender(folder / "round.txt", folder) for contender in order}
            shares.append([theirs / own for theirs, own in zip(taken["bare"], taken["ours"], strict=True)])
            told = (f"{name} {clock:.2f} s ({cpu:.2f} s of processor)" for name, (clock, cpu) in taken.items())
            print(f"round {number}: {', '.join(told)}", file=sys.stderr)
        write_text(folder / "whole.txt", options.megabytes * 10**6, seed=2)
        command = [sys.executable, __file__, "--child", str(folder / "whole.txt"), str(folder)]
        child = json.loads(subprocess.run(command, check=True, capture_output=True, env=dict(os.environ)).stdout)
        size = (folder / "whole.txt").stat().st_size
    by_clock, by_processor = zip(*shares, strict=True)
    found = {
        "share_of_bare": statistics.median(by_clock),
        "share_least": min(by_clock),
        "share_greatest": max(by_clock),
        "processor_share_of_bare": statistics.median(by_processor),
        "megabytes": size / 1e6,
        "megabytes_per_second": size / 1e6 / child["seconds"],
        "peak_megabytes": child["peak_bytes"] / 1e6,
    }
    holds = found["share_of_bare"] >= CLAIMED_SHARE and child["peak_bytes"] < CLAIMED_BYTES
    print(json.dumps(found | {"holds": holds}, indent=2))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found | {"holds": holds}, indent=2) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
