"""One fresh process that takes a folder to the logits of its first tokens, with unembed or with transformers.

    python bench/peers/first_logits.py unembed|transformers FOLDER THREADS

Prints the seconds since the first line ran, since its imports were done, and of loading alone; how far the peak resident
size rose over the size at that moment; and the last token's logits. It imports nothing but what a user of either would;
load.py starts it.
"""

import json
import sys
import time
from pathlib import Path

STARTED = time.perf_counter()
N_TOKENS = 8


def resident_bytes(field: str) -> int:
    """VmRSS, what is resident now, or VmHWM, the most that ever was, of this process under Linux."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main(kind: str, folder: str, threads: int) -> None:
    """Imports, loads, runs, prints."""
    import torch

    torch.set_num_threads(threads)
    vocabulary = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    ids = torch.arange(N_TOKENS)[None] * 3_001 % vocabulary
    if kind == "unembed":
        from unembed.checkpoints.load import load
    else:
        from transformers import LlamaForCausalLM
    imported, before = time.perf_counter(), resident_bytes("VmRSS")
    with torch.no_grad():
        model = load(folder) if kind == "unembed" else LlamaForCausalLM.from_pretrained(folder)
        loaded = time.perf_counter()
        out = model(ids)
        logits = out if kind == "unembed" else out.logits
    ended = time.perf_counter()
    found = {
        "whole": ended - STARTED,
        "loading": loaded - imported,
        "after imports": ended - imported,
        "bytes": resident_bytes("VmHWM") - before,
        "logits": logits[0, -1].tolist(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
