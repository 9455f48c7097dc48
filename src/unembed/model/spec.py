"""What a model is: frozen structs that describe one mathematical function, and nothing else.

No device, dtype, path, seed, tokenizer or training switch stands here. No field that changes the numbers has a default;
`None` means absent. Variants are types, told apart in JSON by their `type`. msgspec does not check types when a struct
is made in Python, lets a key occur twice and writes infinity as null, so every spec passes through `check` once: when a
model is built, and when JSON is read or written.

The next files to read: counts.py (every tensor that a spec implies) and transformer.py (the function itself).
"""

from typing import Literal

import msgspec


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """The base of all descriptions: immutable, fields by name only, unknown fields refused."""


# --- norms -----------------------------------------------------------------------------------------------


class LayerNorm(Spec, tag="layer_norm", frozen=True, kw_only=True):
    """gain * (x - mean) / sqrt(variance + eps) + bias, over d_model. Source: Ba et al. 2016, arXiv:1607.06450."""

    eps: float
    has_bias: bool


class RmsNorm(Spec, tag="rms_norm", frozen=True, kw_only=True):
    """x / sqrt(mean(x^2) + eps), times nothing, `gain`, or `1 + gain` (Gemma). Source: arXiv:1910.07467, equation 4."""

    eps: float
    gain: Literal["none", "plain", "one_plus"]


Norm = LayerNorm | RmsNorm

# --- positions -------------------------------------------------------------------------------------------


class Learned(Spec, tag="learned", frozen=True, kw_only=True):
    """A table row per position, added to the token's vector. Position p reads row p + offset (RoBERTa: offset 2)."""

    n_rows: int
    offset: int

    @property
    def room(self) -> int:
        """How many positions there are."""
        return self.n_rows - self.offset


class Sinusoidal(Spec, tag="sinusoidal", frozen=True, kw_only=True):
    """PE(p, 2i) = sin(p / theta^(2i/d)), PE(p, 2i+1) = cos(same), added. Source: arXiv:1706.03762, section 3.5."""

    theta: float


class LinearScaling(Spec, tag="linear", frozen=True, kw_only=True):
    """Every angle divided by `factor`. Source: Chen et al. 2023, arXiv:2306.15595."""

    factor: float


class DynamicScaling(Spec, tag="dynamic", frozen=True, kw_only=True):
    """Theta grows once a sequence is longer than `original_context` (NTK-aware, as in transformers' `dynamic`)."""

    factor: float
    original_context: int


class Llama3Scaling(Spec, tag="llama3", frozen=True, kw_only=True):
    """Slow pairs divided by `factor`, fast ones kept, a ramp between. Source: Llama 3.1's reference code, `apply_scaling`."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_context: int


class YarnScaling(Spec, tag="yarn", frozen=True, kw_only=True):
    """A ramp between kept and divided pairs, and scores scaled by attention_factor^2. Source: arXiv:2309.00071."""

    factor: float
    original_context: int
    beta_fast: float
    beta_slow: float
    attention_factor: float
    truncates: bool


class Rotary(Spec, tag="rotary", frozen=True, kw_only=True):
    """Pair i of q and k is turned by p * theta^(-2i/n), n the rotated part of the head. Source: arXiv:2104.09864.

    `half` pairs entry i with i + n/2 (Hugging Face files), `interleaved` pairs 2i with 2i + 1 (Meta's and the paper's).
    """

    theta: float
    pairing: Literal["half", "interleaved"]
    fraction: float
    scaling: LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling | None

    def n_rotated(self, d_head: int) -> int:
        """How many of a head's entries turn; the rest pass unchanged (NeoX turns the first quarter)."""
        return int(d_head * self.fraction)


class Alibi(Spec, tag="alibi", frozen=True, kw_only=True):
    """Each score loses slope * distance, one slope a head. Source: Press et al. 2021, arXiv:2108.12409."""


# --- embedding -------------------------------------------------------------------------------------------


class TokenDropout(Spec, tag="token_dropout", frozen=True, kw_only=True):
    """Mask vectors are zeroed and all vectors scaled by (1 - trained_share) / (1 - observed share). Source: esm2.py."""

    mask_id: int
    trained_share: float


class Embedding(Spec, frozen=True, kw_only=True):
    """ids -> vectors: a table row, scaled, plus a position's and a type's vector, then perhaps a norm."""

    vocab_size: int
    d_model: int
    scale: float | None
    position: Learned | Sinusoidal | None
    n_token_types: int | None
    norm: Norm | None
    token_dropout: TokenDropout | None


# --- blocks ----------------------------------------------------------------------------------------------


class Causal(Spec, tag="causal", frozen=True, kw_only=True):
    """A query sees itself and what comes before it; with a window, only the last `window` keys including itself."""

    window: int | None


class Bidirectional(Spec, tag="bidirectional", frozen=True, kw_only=True):
    """Every query sees every key that is not padding."""


class Attention(Spec, frozen=True, kw_only=True):
    """softmax(cap(score_scale * q.k) + position's bias, over the visible keys) v, then the output projection.

    n_kv_heads equal to n_heads is multi-head, 1 is multi-query, between is grouped-query (arXiv:2305.13245).
    """

    n_heads: int
    n_kv_heads: int
    d_head: int
    score_scale: float
    score_softcap: float | None
    position: Rotary | Alibi | None
    sees: Causal | Bidirectional
    biases: tuple[Literal["q", "k", "v", "o"], ...]
    qk_norm: Norm | None


Activation = Literal["gelu", "gelu_tanh", "relu", "relu_squared", "silu"]


class PlainMlp(Spec, tag="plain", frozen=True, kw_only=True):
    """down(activation(up(x)))."""

    d_mlp: int
    activation: Activation
    has_bias: bool


class GatedMlp(Spec, tag="gated", frozen=True, kw_only=True):
    """down(activation(gate(x)) * up(x)). Source: Shazeer 2020, arXiv:2002.05202, equation 5."""

    d_mlp: int
    activation: Activation
    has_bias: bool


class Serial(Spec, tag="serial", frozen=True, kw_only=True):
    """x + F(norm x) for `pre`, norm(x + F(x)) for `post`, x + norm(F(norm x)) for `both`; attention, then the MLP."""

    norm_at: Literal["pre", "post", "both"]


class Parallel(Spec, tag="parallel", frozen=True, kw_only=True):
    """x + attention(norm x) + mlp(norm x), the two norms being one (PaLM) or two (NeoX)."""

    shares_norm: bool


class NoShortcut(Spec, tag="no_shortcut", frozen=True, kw_only=True):
    """F(norm x) without the x: what the residual stream is for is seen when it is gone."""


class Block(Spec, frozen=True, kw_only=True):
    """One layer: attention and MLP, the kind of norm they use, and how they meet the residual stream."""

    attention: Attention
    mlp: PlainMlp | GatedMlp
    norm: Norm
    residual: Serial | Parallel | NoShortcut


# --- head ------------------------------------------------------------------------------------------------


class HeadTransform(Spec, frozen=True, kw_only=True):
    """What a masked-model head does before its table: norm(activation(dense(x))), d_model wide. Source: BERT."""

    activation: Activation
    norm: Norm


class HeadFields(Spec, frozen=True, kw_only=True):
    """What every head has, however it comes to its table: logits = scale * x E^T + bias, then cap * tanh(logits / cap)."""

    transform: HeadTransform | None
    has_bias: bool
    scale: float | None
    softcap: float | None


class TiedHead(HeadFields, tag="tied", frozen=True, kw_only=True):
    """Scores by the very table that embeds."""


class UntiedHead(HeadFields, tag="untied", frozen=True, kw_only=True):
    """Scores by a table of its own."""


class MappedHead(HeadFields, tag="mapped", frozen=True, kw_only=True):
    """Scores by the table that embeds, against x moved by a learned square map: x W^T for x, W [d_model, d_model]."""


class PseudoInverseHead(HeadFields, tag="pseudo_inverse", frozen=True, kw_only=True):
    """A table Z with orthonormal columns and one matrix T: rows of Z T^-1 embed, x T scores against Z.

    T = L L^T, L lower triangular with a positive diagonal, so that (Z T)^T is always the pseudo-inverse of Z T^-1. It
    needs at least as many rows as columns. Source: "Rethinking Weight Tying", arXiv:2602.04556 (model/factor.py says what
    is ours in it).
    """


AnyHead = TiedHead | UntiedHead | MappedHead | PseudoInverseHead
HEADS: dict[str, type[AnyHead]] = {
    "tied": TiedHead,
    "untied": UntiedHead,
    "mapped": MappedHead,
    "pseudo_inverse": PseudoInverseHead,
}


class TransformerSpec(Spec, frozen=True, kw_only=True):
    """A whole model. The number of layers is the length of `blocks`, so the two cannot disagree."""

    context_length: int
    embedding: Embedding
    blocks: tuple[Block, ...]
    final_norm: Norm | None
    head: AnyHead

    @property
    def n_layers(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    @property
    def ties_embeddings(self) -> bool:
        """True when the head scores with the table that embeds, be it through a map."""
        return not isinstance(self.head, UntiedHead)

    @property
    def is_causal(self) -> bool:
        """True when no position can see a later one in any layer."""
        return all(isinstance(block.attention.sees, Causal) for block in self.blocks)


def with_tying(spec: TransformerSpec, tied: bool) -> TransformerSpec:
    """The same model with its head tied or untied; every other field is kept, and so is a map between table and head."""
    return spec if spec.ties_embeddings == tied else with_head(spec, "tied" if tied else "untied")


def with_head(spec: TransformerSpec, kind: str) -> TransformerSpec:
    """The same model with a head of another kind, one of HEADS; every other field is kept."""
    fields = {name: getattr(spec.head, name) for name in spec.head.__struct_fields__}
    return msgspec.structs.replace(spec, head=HEADS[kind](**fields))
