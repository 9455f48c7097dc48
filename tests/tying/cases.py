"""How the memory of two matrices can meet, one case each: the fault, the model, and the whole sentence that is expected.

The next file to read is copied_cases.py.
"""

from typing import NamedTuple

from torch import nn

from tying.builders import drifted, filled_apart, first_rows, frozen, meta, not_numbers, one_unfilled, retied, squared
from tying.models import D, Tiny, V, over, pool, tied, with_head

TIED = "Tied: one parameter, wte.weight, embeds and scores"
COPY = (
    "Not tied: lm_head.weight is an equal copy of wte.weight and will drift apart from it with the first training step"
)
TWO = "Not tied: wte.weight and lm_head.weight are two matrices"
PARAMETERS = (
    "Tied in memory alone: wte.weight and lm_head.weight are two parameters over one storage, so each learns from its own use "
    "and the numbers are stepped twice"
)
OVERLAP = "Broken: wte.weight and lm_head.weight overlap in memory and are not one table"


class Case(NamedTuple):
    fault: str
    build: object
    tied: bool | None
    kind: str
    verdict: str
    broken: tuple = ()
    options: dict | None = None


MEMORY = [
    Case("none: assigned", tied, True, "same_parameter", TIED),
    Case("none: two by design", Tiny, False, "differing", TWO),
    Case("cloned", lambda: with_head(lambda t: nn.Parameter(t.detach().clone())), False, "equal_copy", COPY),
    Case("cloned, with entries that are no numbers", not_numbers, False, "equal_copy", COPY),
    Case(
        "cloned, and meant to be tied",
        lambda: with_head(lambda t: nn.Parameter(t.detach().clone())),
        False,
        "equal_copy",
        f"{COPY}, although the caller says tied",
        ("config",),
        {"means_tied": True},
    ),
    Case(
        "tied, and meant to be untied",
        tied,
        True,
        "same_parameter",
        f"{TIED}, although the caller says untied",
        ("config",),
        {"means_tied": False},
    ),
    Case("cloned and trained", drifted, False, "drifted", "differ by 0.0"),
    Case(
        ".data wrapped again",
        lambda: with_head(lambda t: nn.Parameter(t.data)),
        True,
        "two_parameters",
        PARAMETERS,
        ("storage", "gradient"),
    ),
    Case(
        "two parameters, frozen",
        lambda: frozen(with_head(lambda t: nn.Parameter(t.data))),
        True,
        "view",
        "Tied: lm_head.weight is a view of wte.weight",
    ),
    Case(
        "detached",
        lambda: with_head(lambda t: t.detach()),
        True,
        "detached_view",
        "Tied in memory alone: wte.weight and lm_head.weight are one storage, and one of the two uses teaches it nothing",
        ("storage", "gradient"),
    ),
    Case(
        "a view that learns",
        lambda: with_head(lambda t: t.view_as(t)),
        True,
        "view",
        "Tied: lm_head.weight is a view of wte.weight",
    ),
    Case(
        "transposed in place",
        lambda: with_head(lambda t: t.T, turned=True),
        True,
        "transposed_view",
        "Tied: lm_head.weight is wte.weight, transposed, in one storage",
        (),
        {"embed": "wte", "head": "lm_head"},
    ),
    Case(
        "transposed, wrapped as a parameter",
        lambda: with_head(lambda t: nn.Parameter(t.data.T), turned=True),
        True,
        "two_parameters",
        PARAMETERS,
        ("storage", "gradient"),
    ),
    Case(
        "transposed copy",
        lambda: with_head(lambda t: nn.Parameter(t.detach().T.contiguous()), turned=True),
        False,
        "transposed_copy",
        "Not tied: lm_head.weight is an equal copy of wte.weight, transposed, and will drift apart from it with the first "
        "training step",
    ),
    Case(
        "column by column in memory",
        lambda: with_head(lambda t: nn.Parameter(t.detach().T.contiguous().T)),
        False,
        "equal_copy",
        COPY,
    ),
    Case(
        "a square table, transposed",
        squared,
        False,
        "transposed_copy",
        "Not tied: lm_head.weight is an equal copy of wte.weight, transposed, and will drift apart from it with the first "
        "training step",
    ),
    Case(
        "a slice one row on",
        lambda: over(pool(V + 1, D), lambda p: p[:V], lambda p: p[1:]),
        False,
        "overlap",
        f"{OVERLAP} (one begins 1 row after the other)",
        ("storage",),
    ),
    Case(
        "a slice three numbers on",
        lambda: over(pool(V * D + 3), lambda p: p[: V * D].view(V, D), lambda p: p[3:].view(V, D)),
        False,
        "overlap",
        f"{OVERLAP} (one begins 3 numbers after the other)",
        ("storage",),
    ),
    Case(
        "reshaped where it should be transposed",
        lambda: over(pool(V, D), lambda p: p, lambda p: p.view(D, V).T),
        False,
        "overlap",
        f"{OVERLAP} (the same numbers in another order)",
        ("storage",),
    ),
    Case(
        "halves of one storage", lambda: over(pool(2 * V, D), lambda p: p[:V], lambda p: p[V:]), False, "differing", TWO
    ),
    Case(
        "columns of one storage",
        lambda: over(pool(V, 2 * D), lambda p: p[:, :D], lambda p: p[:, D:]),
        False,
        "differing",
        TWO,
    ),
    Case(
        "equal halves of one storage",
        lambda: over(pool(V, D).repeat(2, 1), lambda p: p[:V], lambda p: p[V:]),
        False,
        "equal_copy",
        COPY,
    ),
    Case(
        "the first rows of a longer table",
        first_rows,
        True,
        "rows_view",
        "Tied: wte.weight and lm_head.weight lie in one storage and share the first 13 rows",
    ),
    Case("none: tied without memory", lambda: meta(tied), True, "same_parameter", TIED),
    Case(
        "two parameters without memory",
        lambda: meta(Tiny),
        None,
        "no_memory",
        "Not known: wte.weight and lm_head.weight are two parameters without numbers (meta); filled as they are, they will not "
        "be tied",
    ),
    Case(
        "one was never filled",
        one_unfilled,
        False,
        "one_without_memory",
        "Broken: of wte.weight and lm_head.weight one was never filled and is without numbers (meta)",
        ("storage",),
    ),
    Case("filled after a start without memory", filled_apart, False, "differing", TWO),
    Case("none: filled and tied again", retied, True, "same_parameter", TIED),
]
