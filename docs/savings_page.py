"""The page of what sharing the table saves: docs/tying_savings.md. Called by generate.py."""

from markup import markdown_table
from unembed.model.counts import BYTES_PER_NUMBER, count
from unembed.model.presets import PRESETS, Preset, preset
from unembed.planning.flops import flops
from unembed.tying.savings import FLOAT32_BYTES, MOMENTS


def savings_page() -> str:
    """What sharing the table saves, or would save, in every preset."""
    header = "preset, published, one table, tied, untied, saved, saved in bfloat16, saved in AdamW, FLOPs per token"
    return "\n".join(
        [
            "# What tying saves",
            "",
            "A tied model has one vocab x d_model table that embeds and scores, an untied one has two. For every preset: how",
            "it was published, the size of one table, the parameters both ways, and the share of the untied model that tying",
            "saves; then the bytes that the second table takes in a bfloat16 file and in AdamW (two float32 moments for each",
            "number). The operations of a forward pass are the same both ways: a shared table is multiplied with like any",
            "other. `unembed count MODEL --tied` prints the same of any model, the user's own included.",
            "",
            *markdown_table(header.split(", "), (savings_row(preset(name)) for name in PRESETS)),
        ]
    )


def savings_row(one: Preset) -> tuple[str, ...]:
    """One line of the table."""
    counts, work = count(one.spec), round(flops(one.spec).forward)
    table = counts.table_parameters
    return (
        f"`{one.name}`",
        "tied" if counts.tied else "untied",
        f"{table:,}",
        f"{counts.parameters_untied - table:,}",
        f"{counts.parameters_untied:,}",
        f"{table / counts.parameters_untied:.1%}",
        in_bytes(table * BYTES_PER_NUMBER["bfloat16"]),
        in_bytes(table * MOMENTS * FLOAT32_BYTES),
        f"{work:,}",
    )


def in_bytes(n: int) -> str:
    """Decimal units, three digits: `77.2 MB`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} B"
