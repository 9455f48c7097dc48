"""Copies, casts, quantisations, wrappers and matrices made in a forward, one case each, as in cases.py.

The next file to read is test_in_memory.py.
"""

import copy

import torch
from torch import nn

from tying.builders import (
    averaged,
    averaged_by_name,
    compiled_part,
    dynamic,
    grown,
    narrow,
    other_matrix,
    recompiled,
    stale,
    whole,
    with_extra,
    with_parts,
)
from tying.cases import COPY, TIED, TWO, Case
from tying.models import D, FromTable, Int8, Tiny, TwoTowers, V, copied_apart, pool, tied, with_head

COPIES = [
    Case("none: deepcopy of the whole", lambda: copy.deepcopy(tied()), True, "same_parameter", TIED),
    Case("deepcopy part by part", lambda: copied_apart(tied()), False, "equal_copy", COPY),
    Case("none: all cast", lambda: tied().to(torch.bfloat16), True, "same_parameter", TIED),
    Case("none: cast there and back", lambda: tied().to(torch.bfloat16).float(), True, "same_parameter", TIED),
    Case(
        "one cast to half",
        lambda: with_head(lambda t: nn.Parameter(t.detach().to(torch.bfloat16))),
        False,
        "cast_copy",
        "Not tied: lm_head.weight is a copy of wte.weight in another type (torch.float32 and torch.bfloat16)",
    ),
    Case(
        "one cast to double",
        lambda: with_head(lambda t: nn.Parameter(t.detach().double())),
        False,
        "cast_copy",
        "Not tied: lm_head.weight is a copy of wte.weight in another type (torch.float32 and torch.float64)",
    ),
    Case(
        "the head quantised by hand",
        lambda: with_parts(tied(), lm_head=lambda m: Int8(m.wte.weight.detach())),
        False,
        "quantised_copy",
        "Not tied: lm_head.weight holds wte.weight in whole numbers, at most 0.5 steps away, and does not follow it",
    ),
    Case(
        "another head, quantised",
        lambda: with_parts(Tiny(), lm_head=lambda m: Int8(pool(V, D))),
        False,
        "differing",
        TWO,
    ),
    Case(
        "the head quantised by PyTorch",
        dynamic,
        False,
        "quantised_copy",
        "Not tied: lm_head.weight holds wte.weight in whole numbers, at most 0.5 steps away, and does not follow it",
    ),
    Case(
        "the head resized alone",
        grown,
        False,
        "resized_alone",
        "Not tied: one of wte.weight and lm_head.weight was resized alone (13 rows and 16, of which 13 are equal)",
    ),
    Case(
        "another width",
        narrow,
        False,
        "other_shape",
        "Not tied: wte.weight and lm_head.weight are two matrices of other shapes ([13, 6] float32 and [13, 12] float32)",
        (),
        {"embed": "wte.weight", "head": "lm_head"},
    ),
    Case("none: a moving average", averaged, True, "same_parameter", TIED),
    Case("a moving average kept by name", averaged_by_name, False, "equal_copy", COPY),
    Case("none: compiled", lambda: torch.compile(tied(), backend="eager"), True, "same_parameter", TIED),
    Case("none: a part compiled", compiled_part, True, "same_parameter", TIED),
    Case("replaced after compiling", recompiled, False, "equal_copy", COPY),
    Case(
        "none: used twice by the forward",
        lambda: FromTable(lambda m: m.wte.weight),
        True,
        "same_parameter",
        TIED,
    ),
    Case(
        "cloned in each forward",
        lambda: FromTable(lambda m: m.wte.weight.clone()),
        True,
        "computed",
        "Tied: the scores use a matrix made from wte.weight in each forward",
    ),
    Case(
        "scaled in each forward",
        lambda: FromTable(lambda m: m.wte.weight * 0.5),
        True,
        "computed",
        "Tied: the scores use a matrix made from wte.weight in each forward",
    ),
    Case(
        "detached in each forward",
        lambda: FromTable(lambda m: m.wte.weight.detach().clone()),
        True,
        "computed_detached",
        "Tied in memory alone: the scores use a matrix made from wte.weight in each forward, and teach it nothing",
        ("storage", "gradient"),
    ),
    Case(
        "made from another matrix in each forward",
        lambda: FromTable(other_matrix),
        False,
        "computed_apart",
        "Not tied: the scores use a matrix made in each forward, and not from wte.weight",
    ),
    Case(
        "none: an encoder's table is the decoder's",
        lambda: TwoTowers(encoder="shared"),
        True,
        "same_parameter",
        "Tied: one parameter, decoder.wte.weight, embeds and scores",
    ),
    Case(
        "an encoder's table is a copy",
        lambda: TwoTowers(encoder="copied"),
        True,
        "same_parameter",
        "Tied: one parameter, decoder.wte.weight, embeds and scores",
    ),
    Case("a copy for decoding, fresh", lambda: with_extra("decode", torch.clone), True, "same_parameter", TIED),
    Case(
        "a transposed copy, fresh",
        lambda: with_extra("decode", lambda t: t.T.contiguous()),
        True,
        "same_parameter",
        TIED,
    ),
    Case("an int8 copy, fresh", lambda: with_extra("decode", whole), True, "same_parameter", TIED),
    Case("none: a view for decoding", lambda: with_extra("decode", lambda t: t.T), True, "same_parameter", TIED),
    Case(
        "a copy for decoding, stale",
        lambda: with_extra("decode", torch.clone, then=stale),
        True,
        "same_parameter",
        f"{TIED}, but decode is a stale copy of wte.weight: make it anew after each step",
        ("copies",),
    ),
    Case(
        "a transposed copy, stale",
        lambda: with_extra("decode", lambda t: t.T.contiguous(), then=stale),
        True,
        "same_parameter",
        f"{TIED}, but decode is a stale copy of wte.weight: make it anew after each step",
        ("copies",),
    ),
    Case(
        "an int8 copy, stale",
        lambda: with_extra("decode", lambda t: whole(t).T.contiguous(), then=stale),
        True,
        "same_parameter",
        f"{TIED}, but decode is a stale copy of wte.weight: make it anew after each step",
        ("copies",),
    ),
]
