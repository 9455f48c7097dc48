"""Files whose config and tables may disagree, written by hand from the families' rules.

The next file to read is test_files.py.
"""

import msgspec
import torch

from oracles.specs import base, changed
from parity import BY_NAME
from parity.tiny import model_of, put
from small import small_model
from unembed.checkpoints.load import CONFIG_KEY
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.native import write_checkpoint
from unembed.model.check import from_plain

GPT2, LLAMA = BY_NAME["gpt2"], BY_NAME["llama"]
EMBED, HEAD = "transformer.wte.weight", "lm_head.weight"


def folder(place, parity=GPT2, *, tied, flag, drop=(), head=None):
    """A folder whose model is tied or not, whose flag says what it is told, and whose head may be replaced."""
    model = model_of(parity, tied=tied)
    more = {}
    if head is not None:
        more[parity.ours().head] = head(model.embed.table.detach()).contiguous()
    return put(place, parity, model, flag=flag, drop=drop, **more)


def near(table):
    return table + 0.01 * torch.randn(table.shape, generator=torch.Generator().manual_seed(5))


def other(table):
    return torch.randn(table.shape, generator=torch.Generator().manual_seed(6))


def llama(*, tied):
    """A model that GGUF can say, wide enough for its blocks of 32 numbers."""
    return small_model(
        changed(
            base(),
            embedding__d_model=32,
            embedding__vocab_size=64,
            block__attention__n_heads=4,
            block__attention__n_kv_heads=4,
            block__attention__d_head=8,
            block__attention__score_scale=8**-0.5,
            block__attention__position={
                "type": "rotary",
                "theta": 10_000.0,
                "pairing": "half",
                "fraction": 1.0,
                "scaling": None,
            },
            block__norm={"type": "rms_norm", "eps": 1e-5, "gain": "plain"},
            final_norm={"type": "rms_norm", "eps": 1e-5, "gain": "plain"},
            block__mlp={"type": "gated", "d_mlp": 32, "activation": "silu", "has_bias": False},
            head__type="tied" if tied else "untied",
        ),
        dtype=torch.float32,
    )


def run_of(place, plain, weights, optimizer=None):
    description = {CONFIG_KEY: {"model": msgspec.to_builtins(from_plain(plain))}}
    with RunFolder.create(place, description=description) as run:
        write_checkpoint(
            run.path / "checkpoints", 3, weights=weights, optimizer=optimizer or {}, state={"step": 3, "complete": True}
        )
    return place


def weights_of(plain):
    return {name: parameter.detach() for name, parameter in small_model(plain).named_parameters()}


def broken(result):
    return tuple(check["name"] for check in result.values["checks"] if check["status"] == "broken")
