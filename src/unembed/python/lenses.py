"""The functions behind `import unembed` that look inside a model on one text: which part, which head, which place, which step.

Each takes a text or ids and names targets as texts or ids; none has logic of its own. `parse_specials` reads the names of
special tokens in a text (`[MASK]`, `<|im_start|>`) as those tokens, not as letters. Before it: models.py, where the others
stand. The next file to read is lenses/asking.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unembed.arguments import refuse_no_flag, refuse_no_model, refuse_types
from unembed.results import Result

if TYPE_CHECKING:
    from torch import Tensor

    from unembed.model.transformer import Transformer


def attribute(
    model: "Transformer",
    text: str | None = None,
    *,
    target: str | int | None = None,
    against: str | int | None = None,
    position: int | None = None,
    ids: "Sequence[int] | Tensor | None" = None,
    parse_specials: bool = False,
) -> Result:
    """Divides one score among the parts of the model: embedding, positions, each head, each MLP, biases. They add up to it.

    `target` (the best-scored token unless given) and `against` are texts of one token, or ids; with `against` it is the
    difference of the two scores. See lenses/attribution.py for the tables. Raises: UsageError for what is not there;
    InputError when a text is given and the model has no tokenizer, or when its scores are no numbers; ShapeError for ids
    without a row.
    """
    refuse_no_model("attribute", model)
    refuse_no_flag("attribute", "parse_specials", parse_specials)
    refuse_types("attribute", text=text, position=position)
    from unembed.lenses.asking import targets, token_ids
    from unembed.lenses.attribution import attribute as run

    found = token_ids("attribute", model, text, ids, parse_specials=parse_specials)
    named = targets("attribute", model, target, against)
    return run(model, found, position=position, **named)


def attention(
    model: "Transformer",
    text: str | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    ids: "Sequence[int] | Tensor | None" = None,
    parse_specials: bool = False,
) -> Result:
    """What every head looks at in one text, in numbers; with a layer (and a head), its patterns too. Both count from 0.

    See lenses/attention_maps.py for the tables. Raises: as `attribute`.
    """
    refuse_no_model("attention", model)
    refuse_no_flag("attention", "parse_specials", parse_specials)
    refuse_types("attention", text=text, layer=layer, head=head)
    from unembed.lenses.asking import token_ids
    from unembed.lenses.attention_maps import attention_maps

    found = token_ids("attention", model, text, ids, parse_specials=parse_specials)
    return attention_maps(model, found, layer=layer, head=head)


def patch(
    model: "Transformer",
    clean: "str | Sequence[int] | Tensor",
    corrupted: "str | Sequence[int] | Tensor",
    *,
    tap: str = "resid_pre",
    by: str = "position",
    target: str | int | None = None,
    against: str | int | None = None,
    position: int | None = None,
    metric: str = "logit_difference",
    parse_specials: bool = False,
) -> Result:
    """Puts what a clean text has at each place into a run on a corrupted one, and says how much of the answer comes back.

    The two are texts, or ids, of one length in tokens. See lenses/patching.py for the options. Raises: as `attribute`;
    UsageError for a step that is not there.
    """
    refuse_no_model("patch", model)
    refuse_no_flag("patch", "parse_specials", parse_specials)
    refuse_types("patch", position=position, tap=tap, by=by, metric=metric)
    from unembed.lenses.asking import targets, token_ids
    from unembed.lenses.patching import patch as run

    rows = [
        token_ids("patch", model, one, parse_specials=parse_specials)
        if isinstance(one, str)
        else token_ids("patch", model, None, one)
        for one in (clean, corrupted)
    ]
    named = targets("patch", model, target, against)
    return run(model, rows[0], rows[1], tap=tap, by=by, position=position, metric=metric, **named)


def stream(
    model: "Transformer",
    text: str | None = None,
    *,
    position: int | None = None,
    ids: "Sequence[int] | Tensor | None" = None,
    parse_specials: bool = False,
) -> Result:
    """What each block adds to the residual stream on one text: lengths and directions. See lenses/stream.py.

    Raises: as `attribute`.
    """
    refuse_no_model("stream", model)
    refuse_no_flag("stream", "parse_specials", parse_specials)
    refuse_types("stream", text=text, position=position)
    from unembed.lenses.asking import token_ids
    from unembed.lenses.stream import stream as run

    return run(model, token_ids("stream", model, text, ids, parse_specials=parse_specials), position=position)
