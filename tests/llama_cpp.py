"""llama.cpp as a second reader of GGUF files, through the package xllamacpp: what it continues a prompt with, greedily.

llama.cpp ends the process where a file contradicts itself, and runs threads of its own, so it gets a process: this file is
that process, too. Keys and values stay in float32, as ours do: its defaults (a cache of 16 bits, flash attention) change
log-probabilities by 2e-3, and without them they are equal to 2e-6.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "xllamacpp"


class Continued(NamedTuple):
    """The continuation alone, and of each of its tokens the id and natural log-probability."""

    text: str
    ids: list[int]
    logprobs: list[float]
    n_prompt: int


def continued(file: Path, prompt: str | list[int], n_tokens: int) -> Continued:
    """Continues a text or ids (none is not allowed) greedily. Skips where the package is missing; fails where it fails."""
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"{PACKAGE} is not installed: the extra `test` brings it where it has a wheel")
    command = [sys.executable, __file__, str(file), json.dumps(prompt), str(n_tokens)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False)
    assert done.returncode == 0, f"llama.cpp ended with {done.returncode}: {done.stderr[-2000:]}"
    return Continued(**json.loads(done.stdout.splitlines()[-1]))


def main(file: str, prompt: str | list[int], n_tokens: int) -> None:
    """Asks llama.cpp and prints its answer as one line of JSON."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = file
    parameters.n_ctx = 512
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.cpuparams.n_threads = 1
    parameters.verbosity = -1
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    server = xllamacpp.Server(parameters)
    greedy = {"temperature": 0.0, "top_k": 1, "samplers": ["top_k"]}
    answer = server.handle_completions({"prompt": prompt, "n_predict": n_tokens, "logprobs": 1, **greedy})
    choice = answer["choices"][0]
    tokens = choice["logprobs"]["content"]
    found = {
        "text": choice["text"],
        "ids": [token["id"] for token in tokens],
        "logprobs": [token["logprob"] for token in tokens],
        "n_prompt": answer["usage"]["prompt_tokens"],
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
