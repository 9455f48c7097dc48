"""Gemma presets: three generations that differ in norms, windows, caps and scales.

All multiply the embedding by sqrt(d_model) on the way in (not on the way out, although the table is shared), norm with
1 + gain, use a gated tanh GELU, and have heads whose width does not follow from the stream's. Gemma 2 adds norms after
attention and MLP, soft caps, and a window on every other layer; Gemma 3 trades the caps for norms on q and k and widens
five layers of six less far than the sixth. The next file to read is neox.py.
"""

from functools import partial
from typing import NamedTuple

from unembed.model.presets.row import Row, attention, embedding, head
from unembed.model.spec import Block, Causal, GatedMlp, LinearScaling, RmsNorm, Rotary, Serial, TransformerSpec


class Size(NamedTuple):
    """What differs between the sizes of a generation; scores are scaled by 1/sqrt(query_scalar)."""

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_mlp: int
    context_length: int
    query_scalar: int


_NORM = RmsNorm(eps=1e-6, gain="one_plus")
_LOCAL_ROTARY = Rotary(theta=1e4, pairing="half", fraction=1.0, scaling=None)


def gemma1_spec(size: Size) -> TransformerSpec:
    """Gemma: pre-norm blocks that see everything before them. Source: arXiv:2403.08295, transformers' modeling_gemma.py."""
    block = _block(size, window=None, rotary=_LOCAL_ROTARY, residual=Serial(norm_at="pre"))
    return _model(size, (block,) * size.n_layers)


def gemma2_spec(size: Size) -> TransformerSpec:
    """Gemma 2: even layers (from 0) see 4,096 keys, odd ones all; scores capped at 50, logits at 30.

    Source: arXiv:2408.00118, section 2; transformers' configuration_gemma2.py.
    """
    kinds = [
        _block(size, window=window, rotary=_LOCAL_ROTARY, residual=Serial(norm_at="both"), score_softcap=50.0)
        for window in (4096, None)
    ]
    return _model(size, tuple(kinds[layer % 2] for layer in range(size.n_layers)), logit_softcap=30.0)


def gemma3_spec(size: Size, window: int, stretch: float | None) -> TransformerSpec:
    """Gemma 3: layers 5, 11, 17, ... see everything at theta 1e6 (angles divided by `stretch`), the others `window` keys.

    Source: arXiv:2503.19786, section 2; transformers' configuration_gemma3.py.
    """
    scaling = LinearScaling(factor=stretch) if stretch else None
    everything = Rotary(theta=1e6, pairing="half", fraction=1.0, scaling=scaling)
    both = Serial(norm_at="both")
    near = _block(size, window=window, rotary=_LOCAL_ROTARY, residual=both, norms_qk=True)
    far = _block(size, window=None, rotary=everything, residual=both, norms_qk=True)
    return _model(size, tuple(near if (layer + 1) % 6 else far for layer in range(size.n_layers)))


def _block(
    size: Size,
    *,
    window: int | None,
    rotary: Rotary,
    residual: Serial,
    score_softcap: float | None = None,
    norms_qk: bool = False,
) -> Block:
    return Block(
        attention=attention(
            size.n_heads,
            size.d_head,
            n_kv_heads=size.n_kv_heads,
            score_scale=size.query_scalar**-0.5,
            score_softcap=score_softcap,
            position=rotary,
            sees=Causal(window=window),
            qk_norm=_NORM if norms_qk else None,
        ),
        mlp=GatedMlp(d_mlp=size.d_mlp, activation="gelu_tanh", has_bias=False),
        norm=_NORM,
        residual=residual,
    )


def _model(size: Size, blocks: tuple[Block, ...], logit_softcap: float | None = None) -> TransformerSpec:
    return TransformerSpec(
        context_length=size.context_length,
        embedding=embedding(size.vocab_size, size.d_model, scale=size.d_model**0.5),
        blocks=blocks,
        final_norm=_NORM,
        head=head(is_tied=True, softcap=logit_softcap),
    )


_GELU = "Old config files say `gelu` and mean its tanh form."
_GEMMA2_ROWS = "DeepMind's own code lists 256,128 rows."
_GEMMA3_ROWS = "The text part alone. DeepMind's own code has 262,144 rows; the Hugging Face files add 64 for images."

# name: vocabulary, width, layers, heads, key heads, head width, MLP width, context, query scalar
_GEMMA1_SIZES = {
    "gemma-2b": Size(256_000, 2048, 18, 8, 1, 256, 16_384, 8192, 256),
    "gemma-7b": Size(256_000, 3072, 28, 16, 16, 256, 24_576, 8192, 256),
}
_GEMMA2_SIZES = {
    "gemma-2-2b": Size(256_000, 2304, 26, 8, 4, 256, 9216, 8192, 256),
    "gemma-2-9b": Size(256_000, 3584, 42, 16, 8, 256, 14_336, 8192, 256),
    # d_model / n_heads, not d_head: the only Gemma 2 whose scores are scaled otherwise
    "gemma-2-27b": Size(256_000, 4608, 46, 32, 16, 128, 36_864, 8192, 144),
}
_GEMMA3_SMALL = {
    "gemma-3-270m": Size(262_144, 640, 18, 4, 1, 256, 2048, 32_768, 256),
    "gemma-3-1b": Size(262_144, 1152, 26, 4, 1, 256, 6912, 32_768, 256),
}
_GEMMA3_LARGE = {
    "gemma-3-4b": Size(262_208, 2560, 34, 8, 4, 256, 10_240, 131_072, 256),
    "gemma-3-12b": Size(262_208, 3840, 48, 16, 8, 256, 15_360, 131_072, 256),
    "gemma-3-27b": Size(262_208, 5376, 62, 32, 16, 128, 21_504, 131_072, 168),
}

ROWS: dict[str, Row] = {
    **{
        name: Row(partial(gemma1_spec, size), f"config.json of google/{name}", _GELU)
        for name, size in _GEMMA1_SIZES.items()
    },
    **{
        name: Row(partial(gemma2_spec, size), f"config.json of google/{name}", _GEMMA2_ROWS)
        for name, size in _GEMMA2_SIZES.items()
    },
    **{
        name: Row(partial(gemma3_spec, size, 512, None), f"config.json of google/{name}-pt".replace("270m-pt", "270m"))
        for name, size in _GEMMA3_SMALL.items()
    },
    **{
        name: Row(partial(gemma3_spec, size, 1024, 8.0), f"config.json of google/{name}-pt", _GEMMA3_ROWS)
        for name, size in _GEMMA3_LARGE.items()
    },
}
