"""Is the head's table the one that embeds? What the config says, what the file holds, and which of them is believed.

Loaders elsewhere trust the flag alone: a trained head is then thrown away in silence, or an absent one left at random
values. Here the file is believed where it is clear, a contradiction is told, and what cannot be known stops the load.
The next file to read is translate.py.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from unembed.checkpoints.formats.safetensors import short
from unembed.errors import CheckpointError


class TieDecision(NamedTuple):
    """Whether the model is tied, and why in one sentence.

    is_surprising  the file contradicts the config
    repeats        the file's head repeats its table number for number, and one of the two is left out
    """

    tied: bool
    reason: str
    is_surprising: bool = False
    repeats: bool = False


def decide_tie(
    flag: bool | None,
    default: bool,
    embed: str,
    head: str,
    stored: Mapping[str, Tensor],
    *,
    family: str,
    where: str,
    rule: str = "the config",
) -> TieDecision:
    """Decides from the config's flag (None where it is absent), the family's default, and the two tables of the file.

    Raises: CheckpointError when the config says untied and the file has no head.
    """
    is_meant, source = (default, f"{family}'s default; the config does not say") if flag is None else (flag, rule)
    if head not in stored:
        if is_meant:
            return TieDecision(True, f"tied ({source}); the file holds the one table")
        raise CheckpointError(
            f"{where}: {family}: tensor {short(head)} is missing, and the model is not tied ({source}). A head at random "
            'values would be no model. If it is tied, say so in config.json: "tie_word_embeddings": true.'
        )
    if embed not in stored:
        return TieDecision(is_meant, f"{'tied' if is_meant else 'untied'} ({source})")
    is_equal = stored[embed].shape == stored[head].shape and torch.equal(stored[embed], stored[head])
    if not is_meant:
        note = "; its two tables are equal copies" if is_equal else ""
        return TieDecision(False, f"untied ({source}){note}")
    if is_equal:
        return TieDecision(True, f"tied ({source}); the file holds the table twice, equal", repeats=True)
    return TieDecision(
        False,
        f"untied, although {source} says tied: the file holds a head of its own, {short(head)}, that differs from "
        f"{short(embed)}. The file is believed; the head is used.",
        is_surprising=True,
    )
