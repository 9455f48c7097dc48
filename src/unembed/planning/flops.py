"""What a forward and a backward pass cost in floating-point operations, from the spec alone, and what rules of thumb miss.

Only matrix multiplications count: [m, k] times [k, n] is 2 m n k operations, one multiplication and one addition for each
term. Norms, activations, softmax and rotations are left out; they are a few in a thousand. Attention is counted over
the keys that each query may see, so a causal model does about half of what a kernel without skipping does. The next file
to read is memory.py.
"""

import msgspec

from unembed.errors import SpecError
from unembed.model.counts import count, tensors
from unembed.model.spec import Bidirectional, Causal, PseudoInverseHead, TransformerSpec

FLOPS_PARTS = ("attention_projections", "attention_scores", "attention_mixing", "mlp", "head")


class Flops(msgspec.Struct, frozen=True, kw_only=True):
    """Operations per token, a mean over the positions of one sequence of `context_length` tokens.

    `by_part` is the forward pass. Looking a row up costs nothing, so the embedding has no part.
    """

    context_length: int
    by_part: dict[str, float]

    @property
    def forward(self) -> float:
        """One forward pass, logits for every position included."""
        return sum(self.by_part.values())

    @property
    def backward(self) -> float:
        """Twice the forward: each product has two gradients, one for each factor, and each costs as much as the product."""
        return 2 * self.forward

    @property
    def training(self) -> float:
        """Forward and backward, nothing recomputed; checkpointing the blocks adds the blocks' forward once more."""
        return self.forward + self.backward


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Two rules of thumb beside what is true of one model.

    12 L d^2 parameters (Kaplan et al. 2020, arXiv:2001.08361, section 2.1) sees neither tables, biases and norms nor any
    block that is not GPT's. 6 N operations per trained token sees no attention scores, and counts numbers that multiply
    nothing: looked-up tables, biases, gains. What is missed is the truth minus the rule, and may be negative.
    """

    twelve_l_d2: int
    twelve_l_d2_misses: int
    six_n: int
    six_n_misses: float


def flops(spec: TransformerSpec, context_length: int | None = None) -> Flops:
    """Counts the operations of a forward pass per token of a full sequence, by part.

    projections  2 * numbers in the matrices of q, k, v, o        mlp   2 * numbers in its matrices
    scores       2 * n_heads * d_head * keys seen, summed over layers   mixing   the same again
    head         2 * vocab_size * d_model, and 2 * d_model^2 each with a transform and with a map; 6 * d_model^2 with a
                 pseudo-inverse: two products with the factor, and two triangular solves where the token is embedded

    `context_length` is that of the spec unless given; padding is not known here and counts as tokens.
    Raises: SpecError when the context length is not positive.

    >>> from unembed.model.presets import preset
    >>> flops(preset("gpt2").spec).by_part["head"] == 2 * 50_257 * 768
    True
    """
    n = spec.context_length if context_length is None else context_length
    if n < 1:
        raise SpecError(f"flops: context_length is {n}; it must be at least 1")
    parts: dict[str, float] = dict.fromkeys(FLOPS_PARTS, 0.0)
    for tensor in tensors(spec):
        if tensor.kind in ("matrix", "map"):
            part = "attention_projections" if tensor.part == "attention" else tensor.part
            parts[part] += 2 * tensor.n_numbers
    parts["head"] += 2 * spec.embedding.vocab_size * spec.embedding.d_model
    if isinstance(spec.head, PseudoInverseHead):
        parts["head"] += 6 * spec.embedding.d_model**2
    for block in spec.blocks:
        attention = block.attention
        each = 2 * attention.n_heads * attention.d_head * keys_seen(attention.sees, n)
        parts["attention_scores"] += each
        parts["attention_mixing"] += each
    return Flops(context_length=n, by_part=parts)


def keys_seen(sees: Causal | Bidirectional, context_length: int) -> float:
    """How many keys a query sees, a mean over the positions of a full sequence, itself included.

    All n of them when it sees both ways; (n + 1) / 2 looking back; with a window w < n, (w (w + 1) / 2 + (n - w) w) / n.

    >>> keys_seen(Causal(window=None), 4), keys_seen(Causal(window=2), 4)
    (2.5, 1.75)
    """
    n = context_length
    if isinstance(sees, Bidirectional):
        return float(n)
    window = n if sees.window is None else min(sees.window, n)
    return (window * (window + 1) / 2 + (n - window) * window) / n


def rules(spec: TransformerSpec, context_length: int | None = None) -> Rules:
    """The two rules of thumb for one model, and what each misses. Raises: SpecError as `flops` does."""
    parameters, d_model = count(spec).parameters, spec.embedding.d_model
    twelve, six = 12 * spec.n_layers * d_model**2, 6 * parameters
    return Rules(
        twelve_l_d2=twelve,
        twelve_l_d2_misses=parameters - twelve,
        six_n=six,
        six_n_misses=flops(spec, context_length).training - six,
    )
