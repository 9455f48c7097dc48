"""docs/naming.md translates every name that the code has, and spells transformers' names as transformers does."""

import re
from pathlib import Path

import pytest

from unembed.model.counts import tensors
from unembed.model.presets import preset

PAGE = Path(__file__).parents[1] / "docs" / "naming.md"
PRESETS = ("gpt2", "llama-3-8b", "gemma-2-2b", "qwen3-0.6b", "pythia-70m", "chemberta-77m")


def sections(page: str) -> dict[str, list[list[str]]]:
    """The rows of each section's table, cells split, head and rule left out."""
    found = {}
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        rows = [line.strip("|").split("|") for line in body.replace(r"\|", "¦").splitlines() if line.startswith("|")]
        found[title] = [[cell.strip() for cell in row] for row in rows[2:]]
    return found


def code(cell: str) -> list[str]:
    """The names between backticks."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture(scope="module")
def page() -> dict[str, list[list[str]]]:
    return sections(PAGE.read_text(encoding="utf-8"))


def test_every_table_has_whole_rows(page):
    for title, rows in page.items():
        assert rows, title
        assert len({len(row) for row in rows}) == 1, title


def test_every_tap_is_translated(page):
    from unembed.model.taps import tap_names

    known = {name for row in page["Taps"] for name in code(row[0])}
    for name in PRESETS:
        taps = {re.sub(r"^blocks\.\d+\.", "", tap) for tap in tap_names(preset(name).spec)}
        assert taps <= known, f"{name}: {sorted(taps - known)} have no row in docs/naming.md"
    used = {re.sub(r"^blocks\.\d+\.", "", tap) for name in PRESETS for tap in tap_names(preset(name).spec)}
    assert known == used


def test_every_tensor_is_translated(page):
    rows = page["Modules and their weights"]
    known = {name for row in rows for name in code(row[0])}
    known.add("blocks.i.attn.k_norm")  # it shares a row with q_norm
    for name in PRESETS:
        for tensor in tensors(preset(name).spec):
            full = re.sub(r"^blocks\.\d+\.", "blocks.i.", tensor.name)
            assert any(full == one or full.startswith(f"{one}.") for one in known), f"{name}: {full} has no row"


def test_sizes_are_spelt_as_transformers_spells_them(page):
    from transformers import Gemma2Config, GPT2Config, LlamaConfig, MistralConfig

    gpt2, llama = GPT2Config(), LlamaConfig()
    others = {"Mistral": MistralConfig(), "Gemma 2": Gemma2Config()}
    for row in page["Sizes"]:
        left, _, right = row[1].partition(" / ")
        named = [config for name, config in others.items() if f"({name})" in row[1]]
        pairs = [(named[0], left)] if named else [(gpt2, left), (llama, right or left)]
        for config, cell in pairs:
            if code(cell) and not cell.startswith("–") and "in the code" not in cell:
                name = code(cell)[0].partition("[")[0]
                assert hasattr(config, name), f"{type(config).__name__} has no {name}"


def test_modules_are_spelt_as_transformers_spells_them(page):
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=5, n_positions=4, n_embd=8, n_layer=1, n_head=2))
    llama = LlamaForCausalLM(
        LlamaConfig(vocab_size=5, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    )
    # a name need not be whole: inside a block it begins at the block
    names = {"gpt2": "\n".join(gpt2.state_dict()), "llama": "\n".join(llama.state_dict())}
    checked = 0
    for row in page["Modules and their weights"]:
        if not row[0].startswith(("`embed", "`blocks", "`final", "`head")) or "Qwen" in row[1] or "BERT" in row[1]:
            continue
        left, _, right = row[1].partition(" / ")
        for family, cell in (("gpt2", left), ("llama", right or left)):
            cell = cell.partition(", Gemma")[0]
            if "(Gemma 2)" in cell or cell.startswith("–"):
                continue
            name = code(cell)[0].removesuffix(".weight").replace(".i", ".0")
            assert re.search(rf"(^|\.){re.escape(name)}(\.|$)", names[family], re.MULTILINE), f"{family}: {name}"
            checked += 1
    assert checked > 20
