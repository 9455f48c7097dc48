"""Does sharing help? One small model with its token table shared in five ways, each at its best learning rate, over seeds.

    for each way: one run at each of three rates (seed 0)  ->  the best rate  ->  three runs at it (seeds 1, 2, 3)

The rate is chosen by the held-out loss of a seed that is not reported, so no reported number had a say in it; it is the same
held-out text, of which a choice among three can take little. Every run is an ordinary one in a folder of its own, so what was
interrupted goes on where it was, and each can be looked at with every other command. The next file to read is shared_table.py.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from unembed.checkpoints.files import explaining
from unembed.checkpoints.load import load
from unembed.corpora.text import find_files
from unembed.errors import NotFiniteError, RunError, UsageError
from unembed.recipes.base import identity
from unembed.recipes.run_data import prepare
from unembed.recipes.shared_table import CHARACTERS, FEWEST, RECIPE, check_vocabulary
from unembed.recipes.start import train
from unembed.recipes.threads import Threads
from unembed.results import Picture, Result, Table
from unembed.tying.alike import MEASURES, likeness
from unembed.visible import counted

# The factor of the scaled lookup gradient: large enough to show, and no more is known of the best one.
LOOKUP_SCALE = 4.0
WAYS: dict[str, dict[str, Any]] = {
    "tied": {"sharing": "tied"},
    "untied": {"sharing": "untied"},
    "scaled_lookup": {"sharing": "tied", "tying.lookup_gradient_scale": LOOKUP_SCALE},
    "mapped": {"sharing": "mapped"},
    "pseudo_inverse": {"sharing": "pseudo_inverse"},
}
RATES = (3e-3, 1e-2, 3e-2)
CHOICE_SEED = 0
SEEDS = (1, 2, 3)
DESCRIPTION, PAGE = "comparison.json", "comparison.md"
OWN = ("seed", "learning_rate", "sharing", "tied", "tying.lookup_gradient_scale", "vocabulary")
Say = Callable[[str], None]


class Run(NamedTuple):
    """One run of a comparison: how its table is shared, its rate and seed, and what it came to; None where it diverged."""

    sharing: str
    learning_rate: float
    seed: int
    path: Path
    val_loss_nats: float | None
    val_bits_per_byte: float | None
    parameters: int | None


def compare_sharing(
    data: Sequence[str | Path],
    *,
    out: str | Path,
    vocabulary: str | int = CHARACTERS,
    settings: Mapping[str, Any] | None = None,
    threads: Threads = None,
    say: Say = lambda sentence: None,
    on_signal: Say = lambda name: None,
) -> Result:
    """Trains all runs that are missing in the folder `out`, and compares them; comparison.md there holds the first table.

    Table `comparison`, a row for each way: `learning_rate`, `rate_at_edge` (the best rate is the lowest or highest that was
    tried, so a better one may lie beyond), the held-out loss in nats per token: `mean`, `deviation` (of the seeds, n - 1),
    `lowest`, `highest`, `minus_tied` (mean over seeds of the difference to the tied run of the same seed) and
    `minus_tied_deviation`; `parameters`; and for ways with two matrices, how alike they ended (alike.py; means over
    seeds). Table `runs`: every run. Raises: RunError where `out` holds another comparison; as `train` does.
    """
    check_vocabulary(vocabulary)
    more = dict(settings or {})
    if taken := [name for name in OWN if name in more]:
        raise UsageError(f"compare-sharing: {taken[0]} is what is compared, or an option of its own; it cannot be set")
    place = Path(out)
    _begin(place, data, vocabulary, more)
    n_all = len(WAYS) * (len(RATES) + len(SEEDS))
    done: list[Run] = []

    def run(way: str, rate: float, seed: int) -> Run:
        one = _run(place, data, way, rate, seed, {**more, "vocabulary": vocabulary}, threads, on_signal)
        done.append(one)
        loss = "diverged" if one.val_loss_nats is None else f"{one.val_loss_nats:.4f} nats"
        say(f"{len(done)} of {n_all}: {way}, learning rate {rate:g}, seed {seed}: {loss}")
        return one

    best: dict[str, float] = {}
    for way in WAYS:
        tried = [run(way, rate, CHOICE_SEED) for rate in RATES]
        best[way] = min(tried, key=lambda one: float("inf") if one.val_loss_nats is None else one.val_loss_nats)[1]
        say(f"{way}: learning rate {best[way]:g} from here on")
    for way in WAYS:  # a way after the other: what is interrupted early still has whole ways to look at
        for seed in SEEDS:
            run(way, best[way], seed)
    result = _result(done, best)
    with explaining(f"writing {place / PAGE}", "The runs are complete; the same command writes it again.", RunError):
        (place / PAGE).write_text(markdown(result), encoding="utf-8")
    return result


def _refuse_too_few(data: Sequence[str | Path], vocabulary: str | int, settings: Mapping[str, Any]) -> None:
    """Before the first run, what the pseudo-inverse ones would meet after twelve. Raises: UsageError."""
    files = [str(one) for one in data]
    spec = prepare(files, RECIPE.name, {**settings, "vocabulary": vocabulary}, None).config.model
    rows, width = spec.embedding.vocab_size, spec.embedding.d_model
    if rows < width:
        raise UsageError(
            f"compare-sharing: the text gives a vocabulary of {rows} and the model is {width} wide, but a pseudo-inverse head "
            f"needs at least as many tokens as the model is wide; nothing was begun. Give --vocabulary {FEWEST}, or more text"
        )


def _begin(place: Path, data: Sequence[str | Path], vocabulary: str | int, settings: Mapping[str, Any]) -> None:
    """Notes down what is compared, or refuses to go on with something else."""
    files = [identity(path) for path in find_files([str(one) for one in data])]
    plain = {"files": files, "vocabulary": vocabulary, "settings": dict(settings), "rates": list(RATES)}
    text = json.dumps({**plain, "seeds": [CHOICE_SEED, *SEEDS], "ways": WAYS}, indent=1) + "\n"
    noted = place / DESCRIPTION
    if noted.is_file():
        if noted.read_text(encoding="utf-8") != text:
            raise RunError(
                f"{noted}: another comparison was begun here: other data, vocabulary or settings. Give the same, or another "
                "--out"
            )
        return
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise RunError(f"{place}: there is something already, and it is no comparison; give a new place as --out")
    _refuse_too_few(data, vocabulary, settings)
    with explaining(f"creating {noted}", "Nothing was begun.", RunError):
        place.mkdir(parents=True, exist_ok=True)
        noted.write_text(text, encoding="utf-8")


def _run(
    place: Path,
    data: Sequence[str | Path],
    way: str,
    rate: float,
    seed: int,
    settings: Mapping[str, Any],
    threads: Threads,
    on_signal: Say,
) -> Run:
    """One run, begun or gone on with or read; a rate at which numbers stop being finite is no error here, but a result."""
    path = place / way / f"rate-{rate:g}-seed-{seed}"
    chosen = {**settings, **WAYS[way], "learning_rate": rate, "seed": seed}
    try:
        came = train(
            data,
            recipe_name=RECIPE.name,
            out=path,
            settings=chosen,
            resume=True,
            command="unembed compare-sharing",
            threads=threads,
            on_signal=on_signal,
        )
    except NotFiniteError:
        return Run(way, rate, seed, path, None, None, None)
    return Run(way, rate, seed, path, came.val_loss_nats, came.val_bits_per_byte, came.parameters)


def _result(done: Sequence[Run], best: Mapping[str, float]) -> Result:
    reported = {way: [one for one in done if one.sharing == way and one.seed in SEEDS] for way in WAYS}
    rows = [_row(way, best[way], reported[way], reported["tied"]) for way in WAYS]
    runs = {
        "sharing": [one.sharing for one in done],
        "learning_rate": [one.learning_rate for one in done],
        "seed": [one.seed for one in done],
        "reported": [one.seed in SEEDS for one in done],
        "val_loss_nats": [one.val_loss_nats for one in done],
        "val_bits_per_byte": [one.val_bits_per_byte for one in done],
        "run": [str(one.path) for one in done],
    }
    nats = dict.fromkeys(("mean", "deviation", "lowest", "highest", "minus_tied", "minus_tied_deviation"), "nats")
    return Result(
        name="compare_sharing",
        tables={
            "comparison": Table(columns={name: [row[name] for row in rows] for name in rows[0]}, units=nats),
            "runs": Table(columns=runs, units={"val_loss_nats": "nats"}),
        },
        values={"lookup_scale": LOOKUP_SCALE, "seeds": len(SEEDS), "rates": list(RATES)},
        pictures=(
            Picture(
                key="compare_sharing",
                kind="points",
                table="runs",
                x="learning_rate",
                y="val_loss_nats",
                color="sharing",
                tooltip=("sharing", "learning_rate", "seed", "reported", "val_loss_nats"),
            ),
        ),
    )


def _row(way: str, rate: float, runs: Sequence[Run], tied: Sequence[Run]) -> dict[str, Any]:
    losses = [one.val_loss_nats for one in runs if one.val_loss_nats is not None]
    base = {one.seed: one.val_loss_nats for one in tied}
    pairs = [(one.val_loss_nats, base.get(one.seed)) for one in runs]
    apart = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
    return {
        "sharing": way,
        "learning_rate": rate,
        "rate_at_edge": rate in (min(RATES), max(RATES)),
        "mean": statistics.mean(losses) if losses else None,
        "deviation": statistics.stdev(losses) if len(losses) > 1 else None,
        "lowest": min(losses, default=None),
        "highest": max(losses, default=None),
        "minus_tied": statistics.mean(apart) if apart else None,
        "minus_tied_deviation": statistics.stdev(apart) if len(apart) > 1 else None,
        "diverged": len(runs) - len(losses),
        "parameters": next((one.parameters for one in runs if one.parameters is not None), None),
        **_likeness([one.path for one in runs if one.val_loss_nats is not None], way),
    }


def _likeness(paths: Sequence[Path], way: str) -> dict[str, float | None]:
    """The mean of each measure over the seeds, and of its value by chance; None where there is one table."""
    names = [f"{measure}{end}" for measure in MEASURES for end in ("", "_by_chance")]
    if WAYS[way]["sharing"] == "tied" or not paths:
        return dict.fromkeys(names)
    found: dict[str, list[float]] = {name: [] for name in names}
    for path in paths:
        table = likeness(load(path)).tables["likeness"]
        for measure, value, chance in zip(table["measure"], table["value"], table["paired_at_random"], strict=True):
            found[measure].append(value)
            found[f"{measure}_by_chance"].append(chance)
    return {name: statistics.mean(values) for name, values in found.items()}


def markdown(result: Result) -> str:
    """The comparison as a table for a page: what docs/tying.md shows is this, pasted."""
    seeds = counted(result.values["seeds"], "seed")
    lines = [
        f"| sharing | best rate | held-out loss, mean of {seeds} | deviation | lowest to highest | minus tied, by seed "
        "| parameters | row cosine | after Procrustes (by chance) | CKA (by chance) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result.tables["comparison"].rows():
        edge = ", at the edge" if row["rate_at_edge"] else ""
        alike = [_shown(row["row_cosine"], 3)]
        for measure in MEASURES[1:]:
            known = row[measure] is not None
            chance = f" ({_shown(row[f'{measure}_by_chance'], 3)})" if known else ""
            alike.append(f"{_shown(row[measure], 3)}{chance}")
        apart = "" if row["minus_tied_deviation"] is None else f" ± {_shown(row['minus_tied_deviation'], 4)}"
        cells = [
            f"`{row['sharing']}`",
            f"{row['learning_rate']:g}{edge}",
            _shown(row["mean"], 4),
            _shown(row["deviation"], 4),
            f"{_shown(row['lowest'], 4)} to {_shown(row['highest'], 4)}",
            f"{_shown(row['minus_tied'], 4, sign='+')}{apart}" if row["sharing"] != "tied" else "",
            "-" if row["parameters"] is None else f"{row['parameters']:,}",
            *alike,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _shown(value: Any, digits: int, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.{digits}f}"
