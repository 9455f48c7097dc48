"""The benchmark of loading measures what it says; and a large file is never held twice."""

import json
import subprocess
import sys

import pytest
import torch

import load as bench
from unembed.model.presets.llama import Size

SMALL = Size(64, 32, 1, 2, 2, 16, 48, 64, False)
# 76,570,624 numbers, 306 MB in float32
LARGE = Size(16_000, 1024, 4, 16, 16, 64, 2000, 2048, False)


@pytest.mark.slow
def test_both_programs_give_the_same_logits_and_their_times(tmp_path):
    n_bytes = bench.make_file(tmp_path, SMALL)
    assert n_bytes > 4 * 64 * 32 * 2
    ours, theirs = (bench.measure(kind, tmp_path, threads=1) for kind in bench.KINDS)
    assert torch.allclose(torch.tensor(ours["logits"]), torch.tensor(theirs["logits"]), atol=1e-6)
    for one in (ours, theirs):
        assert 0 < one["loading"] < one["after imports"] < one["whole"]


@pytest.mark.slow
def test_a_large_file_is_held_once_from_opening_to_logits(tmp_path):
    n_bytes = bench.make_file(tmp_path, LARGE)
    found = bench.measure("unembed", tmp_path, threads=1)
    assert found["bytes"] <= 1.1 * n_bytes


@pytest.mark.slow
def test_seeded_a_second_copy_is_seen(tmp_path):
    n_bytes = bench.make_file(tmp_path, LARGE)
    text = bench.CHILD.read_text(encoding="utf-8")
    copying = tmp_path / "copying.py"
    copying.write_text(text.replace("load(folder) if", "load(folder, dtype=torch.float64) if"), encoding="utf-8")
    out = subprocess.run(
        [sys.executable, str(copying), "unembed", str(tmp_path), "1"], capture_output=True, text=True, check=True
    )
    assert json.loads(out.stdout)["bytes"] > 1.9 * n_bytes
