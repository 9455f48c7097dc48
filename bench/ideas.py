"""Which ideas make the recipe small better: each switched on its own, on three texts with three seeds, losers too.

Every run is `unembed train TEXT --recipe small --minutes M` with one idea's settings, so the recipe's own choices (tokenizer,
size, steps) are the same for all ideas on a text. The loss is bits per byte of the held-out tenth, which compares across
tokenizers; beside it stands the time of the steps. An idea wins where its mean over seeds is better than `as it is` by more
than the spread of the seeds on every text. Results are kept one a line, and a second start goes on where the first was
stopped:

    python bench/ideas.py --out ideas-results ../shared/data/text/{tinyshakespeare,quijote}.txt

writes ideas-results/runs.jsonl and ideas-results/ideas.md. The texts default to tinyshakespeare, quijote and korean_chat in
$UNEMBED_TEST_DATA/text. Before it: speedrun.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PLAIN = "as it is"
IDEAS: dict[str, tuple[str, ...]] = {
    PLAIN: (),
    "adamw and cosine": ("optimizer=adamw", "schedule=cosine"),
    "adamw": ("optimizer=adamw",),
    "cosine": ("schedule=cosine",),
    "muon": ("optimizer=muon",),
    "muon and plateau": ("optimizer=muon", "schedule=plateau"),
    "momentum 0.8": ("optimizer=muon", "training.optimizer.momentum=0.8"),
    "twice the rate": ("learning_rate=5e-3",),
    "untied": ("tied=false",),
    "no clipping": ("training.clip_norm=null",),
}
# Of a table the column that holds the text; what is not here is read as it is.
COLUMNS = {"korean_chat.csv": ("--column", "A")}
TEXTS = ("tinyshakespeare.txt", "quijote.txt", "korean_chat.csv")


def wanted(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every run, seeds outermost, so that a first answer for all ideas comes early."""
    for seed in range(1, options.seeds + 1):
        for text in options.texts:
            for idea in options.only:
                yield {"text": text.name, "idea": idea, "seed": seed, "minutes": options.minutes}


def run(text: Path, key: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """One training, and what is kept of it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "unembed",
            "train",
            str(text),
            "--recipe",
            "small",
            "--quiet",
            "--format",
            "json",
        ]
        command += ["--minutes", str(key["minutes"]), "--threads", str(threads), "--out", str(Path(folder) / "run")]
        command += ["--device", "cpu", "--set", f"seed={key['seed']}", "--set", "sample_every=0"]
        command += COLUMNS.get(text.name, ())
        for setting in IDEAS[key["idea"]]:
            command += ["--set", setting]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    names = ("val_loss_nats", "val_bits_per_byte", "seconds", "step", "parameters")
    return {**key, **{name: found[name] for name in names}}


def done_before(file: Path) -> list[dict[str, Any]]:
    """The results that are there; a line that a kill left unfinished is measured again."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def report(results: list[dict[str, Any]]) -> str:
    """A table a text: the mean over seeds, how far from `as it is`, the spread, and the time of the steps."""
    lines = [
        "# Ideas for the recipe small",
        "",
        "Bits per byte of the held-out tenth: mean over seeds, least and greatest.",
        "",
    ]
    for text in dict.fromkeys(one["text"] for one in results):
        here = [one for one in results if one["text"] == text]
        base = statistics.mean([one["val_bits_per_byte"] for one in here if one["idea"] == PLAIN] or [float("nan")])
        lines += [
            f"## {text}",
            "",
            "| idea | seeds | bits per byte | least | greatest | against as it is | seconds of steps |",
        ]
        lines += ["|---|---|---|---|---|---|---|"]
        rows = []
        for idea in dict.fromkeys(one["idea"] for one in here):
            losses = [one["val_bits_per_byte"] for one in here if one["idea"] == idea]
            seconds = statistics.mean(one["seconds"] for one in here if one["idea"] == idea)
            mean = statistics.mean(losses)
            cells = (
                idea,
                len(losses),
                f"{mean:.4f}",
                f"{min(losses):.4f}",
                f"{max(losses):.4f}",
                f"{mean / base - 1:+.2%}",
            )
            rows.append((mean, f"| {' | '.join(map(str, cells))} | {seconds:.0f} |"))
        lines += [row for _, row in sorted(rows)] + [""]
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """The command line."""
    folder = Path(os.environ.get("UNEMBED_TEST_DATA", "../shared/data")) / "text"
    parser = argparse.ArgumentParser(description="ideas for the recipe small, one at a time")
    parser.add_argument("texts", type=Path, nargs="*", default=[folder / name for name in TEXTS])
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; a second start goes on")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=1.0, help="budget of each run (default 1)")
    parser.add_argument("--threads", type=int, default=1)
    names = list(IDEAS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="IDEA", help=f"some of: {names}")
    return parser.parse_args()


def main() -> int:
    """Measures what is missing, and writes the table after each run."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    file, by_name = options.out / "runs.jsonl", {text.name: text for text in options.texts}
    results = done_before(file)
    keys = ("text", "idea", "seed", "minutes")
    have = {tuple(one[key] for key in keys) for one in results}
    for key in wanted(options):
        if tuple(key[name] for name in keys) in have:
            continue
        results.append(run(by_name[key["text"]], key, options.threads))
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(results[-1]) + "\n")
        (options.out / "ideas.md").write_text(report(results), encoding="utf-8")
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    print(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
