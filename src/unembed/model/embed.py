"""Ids become vectors: a row of the table, plus what the position and the token type add.

The parts stay apart until they are summed here, and each has a tap (`embed`, `pos_embed`). The table is used through
an alias, tapped as `embed.table`: a tied head uses it a second time through `unembed.table`, and the two gradients that
meet in the table can be told apart there. The next files to read are in positions/.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unembed.errors import ShapeError
from unembed.model.factor import Factor
from unembed.model.norms import make_norm
from unembed.model.positions.learned import learned_positions
from unembed.model.positions.sinusoidal import sinusoids
from unembed.model.spec import Embedding, Learned, Sinusoidal, TokenDropout
from unembed.model.taps import Tap, one_use


class Embed(nn.Module):
    """table[id] * scale + position + token type, then the norm if there is one."""

    def __init__(self, spec: Embedding) -> None:
        super().__init__()
        self.spec = spec
        self.table = nn.Parameter(torch.empty(spec.vocab_size, spec.d_model))
        rows = spec.position.n_rows if isinstance(spec.position, Learned) else None
        self.pos_table = None if rows is None else nn.Parameter(torch.empty(rows, spec.d_model))
        types = spec.n_token_types
        self.type_table = None if types is None else nn.Parameter(torch.empty(types, spec.d_model))
        self.norm = None if spec.norm is None else make_norm(spec.norm, spec.d_model)

    def forward(
        self,
        ids: Int[Tensor, "batch pos"],
        positions: Int[Tensor, "#batch pos"],
        mask: Bool[Tensor, "batch pos"] | None,
        token_types: Int[Tensor, "batch pos"] | None,
        tap: Tap,
        factor: Factor | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """The first residual stream. Without `token_types` every token is of type 0; `factor` is a head's that has one.

        Raises: ShapeError when an id has no row.
        """
        table = tap("embed.table", one_use(self.table))
        vectors = _rows("ids", table, ids)
        vectors = vectors if factor is None else factor.inverse(vectors)
        if self.spec.scale is not None:
            # Rounded to the table's type first, as Gemma's own code does: in bfloat16 sqrt(2048) is 45.25.
            vectors = vectors * torch.tensor(self.spec.scale, dtype=vectors.dtype, device=vectors.device)
        if self.spec.token_dropout is not None:
            vectors = _drop_masked(vectors, ids, mask, self.spec.token_dropout)
        resid = tap("embed", vectors)
        if isinstance(self.spec.position, Learned) and self.pos_table is not None:
            resid = resid + tap("pos_embed", learned_positions(self.spec.position, self.pos_table, positions))
        elif isinstance(self.spec.position, Sinusoidal):
            resid = resid + tap("pos_embed", sinusoids(self.spec.position, positions, resid))
        if self.type_table is not None:
            types = self.type_table[0] if token_types is None else _rows("token types", self.type_table, token_types)
            resid = resid + types
        return resid if self.norm is None else self.norm(resid)


def _rows(
    what: str, table: Float[Tensor, "rows d_model"], ids: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch pos d_model"]:
    """Looks rows up; an id without a row is an error that says so. Local axis: rows."""
    try:
        return F.embedding(ids, table)
    except IndexError as error:
        raise ShapeError(
            f"embed: {what} run from {int(ids.min())} to {int(ids.max())}, but the table has {table.shape[0]} rows. "
            "Was the text encoded with another model's tokenizer?"
        ) from error


def _drop_masked(
    vectors: Float[Tensor, "batch pos d_model"],
    ids: Int[Tensor, "batch pos"],
    mask: Bool[Tensor, "batch pos"] | None,
    spec: TokenDropout,
) -> Float[Tensor, "batch pos d_model"]:
    """Zeroes masked tokens and rescales the rest to the share of masks that training saw."""
    masked = ids == spec.mask_id
    real = torch.ones_like(masked) if mask is None else mask
    observed = (masked & real).sum(-1).to(vectors.dtype) / real.sum(-1).clamp(min=1)
    scale = (1 - spec.trained_share) / (1 - observed).clamp(min=torch.finfo(vectors.dtype).tiny)
    # A sequence of masks alone has nothing left to rescale: its vectors are zero whatever the scale.
    return vectors.masked_fill(masked[..., None], 0.0) * scale[:, None, None]
