"""What a head looks at, in a few numbers: the token before, the first one, itself, what came after the same token before.

All are means over the positions from the second on: the first one of a causal model can only look at itself. A pattern that
is spread evenly has scores above 0 as well: over n visible keys each gets 1 / n. The next file to read is attention_maps.py.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

SCORES = ("previous", "first", "itself", "same_token", "induction")


def repeats(ids: Sequence[int]) -> tuple[Bool[Tensor, "pos key_pos"], Bool[Tensor, "pos key_pos"]]:
    """For each position the earlier places of its own token, and the places right after those: where induction looks.

    Neither contains the position itself: after `a a`, looking at the second `a` from itself is no induction.

    >>> same, after = repeats([5, 6, 5])
    >>> same[2].tolist(), after[2].tolist()
    ([True, False, False], [False, True, False])
    """
    tokens = torch.as_tensor(list(ids))
    same = (tokens[:, None] == tokens[None, :]).tril(-1)
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    return same, after.tril(-1)


def head_scores(
    pattern: Float[Tensor, "head pos key_pos"], ids: Sequence[int]
) -> dict[str, Float[Tensor, " head"] | None]:
    """The scores of each head of one layer on one text, each a mean of attention weights, so from 0 to 1.

    `previous`, `first`, `itself`: the weight on the key before, on the first key, on the query's own. `same_token`: the
    weight on earlier places of the query's token, and `induction`: on the places right after those, both over the positions
    whose token occurred before (None where no token repeats). `entropy_nats`: of the weights of a query. None where the text
    has one token. Source of induction: Olsson et al. 2022, "In-context learning and induction heads".
    """
    n_pos = pattern.shape[1]
    if n_pos < 2:
        return dict.fromkeys((*SCORES, "entropy_nats"))
    wide = pattern.double()
    later = wide[:, 1:]
    same, after = (one.to(pattern.device) for one in repeats(ids))
    # a query without a hit does not count; of `a a` the second has an earlier place, and nothing that came after it
    found: dict[str, Tensor | None] = {
        "previous": wide.diagonal(-1, dim1=1, dim2=2).mean(-1),
        "first": later[:, :, 0].mean(-1),
        "itself": wide.diagonal(dim1=1, dim2=2)[:, 1:].mean(-1),
    }
    for name, hits in (("same_token", same), ("induction", after)):
        asked = hits.any(-1)
        found[name] = (wide * hits).sum(-1)[:, asked].mean(-1) if asked.any() else None
    found["entropy_nats"] = -torch.special.xlogy(later, later).sum(-1).mean(-1)
    return found
