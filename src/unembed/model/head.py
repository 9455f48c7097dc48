"""The head: vectors become scores over the vocabulary. A tied head owns no table; it is handed the one that embeds.

So tying cannot come apart by copying, casting or saving a module: there is one parameter, and two places that use it.
Two kinds of heads share the table through a matrix: `map` moves what is scored, `factor` moves it here and moves it back
where tokens are embedded. The next file to read is factor.py.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unembed.model.factor import Factor
from unembed.model.linear import Projection
from unembed.model.mlp import activate
from unembed.model.norms import make_norm
from unembed.model.product import product
from unembed.model.spec import AnyHead, HeadTransform, MappedHead, PseudoInverseHead, UntiedHead
from unembed.model.taps import Tap, one_use


class TransformModule(nn.Module):
    """norm(activation(dense(x))): what BERT-like models do before their table."""

    def __init__(self, spec: HeadTransform, d_model: int) -> None:
        super().__init__()
        self.activation = spec.activation
        self.dense = Projection(d_model, d_model, has_bias=True)
        self.norm = make_norm(spec.norm, d_model)

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Keeps the width of the stream."""
        out: Tensor = self.norm(activate(self.activation, self.dense(x)))
        return out


class Head(nn.Module):
    """logits = softcap(scale * share(transform(x)) W_U^T + bias), each part present only if the spec names it.

    share(x) is x for a tied and an untied head, map(x) for a mapped one, x T for a pseudo-inverse one.
    """

    def __init__(self, spec: AnyHead, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.transform = None if spec.transform is None else TransformModule(spec.transform, d_model)
        self.table = nn.Parameter(torch.empty(vocab_size, d_model)) if isinstance(spec, UntiedHead) else None
        self.map = Projection(d_model, d_model, has_bias=False) if isinstance(spec, MappedHead) else None
        self.factor = Factor(d_model) if isinstance(spec, PseudoInverseHead) else None
        self.bias = nn.Parameter(torch.empty(vocab_size)) if spec.has_bias else None

    def features(self, normed: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """What the table is multiplied with: the final norm's output, transformed, moved and scaled as the spec says."""
        x = normed if self.transform is None else self.transform(normed)
        x = x if self.map is None else self.map(x)
        x = x if self.factor is None else self.factor(x)
        return x if self.spec.scale is None else x * self.spec.scale

    def forward(
        self, normed: Float[Tensor, "batch pos d_model"], embed_table: Float[Tensor, "vocab d_model"], tap: Tap
    ) -> Float[Tensor, "batch pos vocab"]:
        """Scores every row of the table at every position, in nats before normalisation; never probabilities.

        softcap: cap * tanh(logits / cap). Source: Gemma 2 report, arXiv:2408.00118, section 2.
        """
        table = embed_table if self.table is None else self.table
        logits = product(self.features(normed), tap("unembed.table", one_use(table)), self.bias)
        if (cap := self.spec.softcap) is not None:
            logits = cap * torch.tanh(logits / cap)
        return tap("logits", logits)
