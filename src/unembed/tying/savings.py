"""A model with one table and with two, side by side: what sharing saves in numbers and bytes, and what it does not.

Sharing saves one V x d table wherever parameters are held: in the file, and in the optimizer. It saves no operations: a shared
table is multiplied with as often as one of its own, and looking a row up costs none either way. No torch here: presets are
counted at once. The next file to read is doctor.py.
"""

from msgspec.structs import replace

from unembed.model.counts import BYTES_PER_NUMBER, Counts, count
from unembed.model.spec import TransformerSpec, with_tying
from unembed.results import Table

# AdamW keeps two moments of each parameter, in float32 whatever the weights are in.
MOMENTS = 2
FLOAT32_BYTES = BYTES_PER_NUMBER["float32"]


def side_by_side(spec: TransformerSpec, flops_per_token: int) -> Table:
    """Three rows: the model tied, untied, and the difference. `flops_per_token` is of either, since tying changes none.

    share            of the one table, or of the two, in all parameters
    weight_bytes     in float32; halve them for bfloat16
    optimizer_bytes  of AdamW's two moments
    """
    tied, untied = (count(with_tying(spec, shares)) for shares in (True, False))
    saved = replace(untied, parameters=untied.parameters - tied.parameters)
    rows = {"tied": (tied, 1), "untied": (untied, 2), "saved": (saved, 1)}
    parameters = {name: counts.parameters for name, (counts, _) in rows.items()}
    return Table(
        columns={
            "head_table": list(rows),
            "parameters": list(parameters.values()),
            "share": [_share(name, counts, n, untied) for name, (counts, n) in rows.items()],
            "weight_bytes": [n * FLOAT32_BYTES for n in parameters.values()],
            "optimizer_bytes": [n * MOMENTS * FLOAT32_BYTES for n in parameters.values()],
            "flops_per_token": [flops_per_token, flops_per_token, 0],
        },
        units={"weight_bytes": "bytes", "optimizer_bytes": "bytes"},
    )


def _share(name: str, counts: Counts, n_tables: int, untied: Counts) -> float:
    """The tables' share; what is saved is a share of the untied model."""
    return n_tables * counts.table_parameters / (untied.parameters if name == "saved" else counts.parameters)
