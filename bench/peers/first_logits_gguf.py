"""One fresh process that takes a .gguf file to the logits of a short text, with unembed or with transformers.

    python bench/peers/first_logits_gguf.py unembed|transformers FILE THREADS

Both open the model and its tokenizer, as one does who wants to use them. Prints the seconds since the first line ran and
since its imports were done, the peak resident size and how far it rose over the size at that moment, and the logits.
load_gguf.py starts it. It imports nothing but what a user of either would.
"""

import json
import sys
import time
from pathlib import Path

STARTED = time.perf_counter()
TEXT = "The capital of France is"


def resident_bytes(field: str) -> int:
    """VmRSS, what is resident now, or VmHWM, the most that ever was, of this process under Linux."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main(kind: str, file: str, threads: int) -> None:
    """Imports, loads, runs, prints."""
    import torch

    torch.set_num_threads(threads)
    if kind == "unembed":
        from unembed.checkpoints.load import load
    else:
        from transformers import AutoTokenizer, LlamaForCausalLM
    imported, before = time.perf_counter(), resident_bytes("VmRSS")
    with torch.no_grad():
        if kind == "unembed":
            model = load(file)
            assert model.tokenizer is not None
            logits = model(torch.tensor([model.tokenizer.encode(TEXT).ids]))
        else:
            folder, name = Path(file).parent, Path(file).name
            tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
            theirs = LlamaForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
            logits = theirs(torch.tensor([tokenizer(TEXT)["input_ids"]])).logits
    ended, peak = time.perf_counter(), resident_bytes("VmHWM")
    found = {
        "whole": ended - STARTED,
        "after imports": ended - imported,
        "peak": peak,
        "growth": peak - before,
        "logits": logits[0, -1].tolist(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
