"""Pages that are derived from the code say what the code says now; `make docs` writes them anew."""

import importlib.util
import sys
from pathlib import Path

import click
import pytest

DOCS = Path(__file__).parents[1] / "docs"


def load_generator():
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate_docs"] = module
    spec.loader.exec_module(module)
    return module


generate = load_generator()


@pytest.fixture(scope="module")
def stale():
    return generate.stale()


@pytest.mark.parametrize("name", generate.PAGES)
def test_page_is_up_to_date(name, stale):
    assert name not in stale, f"docs/{name} is stale; run `make docs`"


def test_every_generated_page_has_its_line():
    marked = {path.name for path in DOCS.rglob("*.md") if generate.MARK in path.read_text(encoding="utf-8")}
    assert marked == set(generate.PAGES)


def test_seeded_change_and_missing_page_are_stale(tmp_path):
    assert generate.stale(tmp_path) == list(generate.PAGES)
    for name in generate.PAGES:
        (tmp_path / name).write_text(generate.written(name), encoding="utf-8")
    assert generate.stale(tmp_path) == []
    page = tmp_path / "presets.md"
    page.write_text(page.read_text(encoding="utf-8").replace("124,439,808", "124,439,809"), encoding="utf-8")
    assert generate.stale(tmp_path) == ["presets.md"]


def test_presets_page_has_a_row_for_each_with_its_exact_size():
    page = generate.presets_page()
    assert "| `gpt2` | 124,439,808 | 31.0% | 12 | 768 | 12 / 12 | 64 | 3,072 | 50,257 | 1,024 | learned | yes |" in page
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert all(any(row.startswith(f"| `{name}` | ") for row in rows) for name in generate.PRESETS)


def test_cli_page_holds_every_visible_command():
    @click.group(help="A tool.")
    def tool():
        pass

    @tool.command(help="Counts.\n\nA second paragraph.")
    @click.option("--tied", is_flag=True, help="Share the table.")
    def count(tied):
        pass

    @tool.command(hidden=True)
    def secret():
        pass

    page = generate.cli_page(tool, "tool")
    assert "## count\n\n```text\nUsage: tool count [OPTIONS]\n\n  Counts.\n\n  A second paragraph.\n" in page
    assert "--tied  Share the table." in page
    assert "secret" not in page
    assert not any(line.endswith(" ") for line in page.splitlines())


def test_bars_in_cells_do_not_make_columns():
    assert list(generate.markdown_table(("a",), iter([("x|y",)]))) == ["| a |", "|---|", "| x\\|y |"]


def test_cli_page_shows_both_ways_to_ask_for_help():
    page = generate.PAGES["cli.md"]()
    assert page.count("-h, --help") == 1 + len(generate.cli.list_commands(click.Context(generate.cli)))


def test_taps_page_has_every_name_with_its_axes_and_the_file_that_calls_it():
    from unembed.model.taps import tap_names

    page = generate.taps_page()
    names = {
        name.replace("blocks.0.", "blocks.*.")
        for variant in ("", *generate.TAP_VARIANTS)
        for name in tap_names(generate.tap_spec(variant))
    }
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert set(rows) == names
    assert rows["blocks.*.attn_scores"] == (
        "| `blocks.*.attn_scores` | [batch, head, pos, key_pos] | `model/attention.py` | explicit path only |"
    )
    assert rows["pos_embed"].endswith("| with added positions |")
    assert rows["blocks.*.resid_mid"].endswith("| not with parallel blocks |")
    assert all(".py` |" in row for row in rows.values())


def test_every_axis_of_the_taps_page_has_a_size_of_its_own():
    from unembed.model.axes import AXES

    assert len(set(generate.AXIS_SIZES.values()) | {1}) == len(generate.AXIS_SIZES) + 1
    assert set(generate.AXIS_SIZES) == set(AXES) - {"layer"}


def test_families_page_has_a_section_for_each_with_what_it_refuses():
    from unembed.checkpoints.families import FAMILIES

    page = generate.PAGES["families.md"]()
    for family in FAMILIES:
        assert (f"\n## {family.name}\n" in page) == bool(family.model_types)
        assert all(f"| key `{key}` | excused | {reason} |" in page for key, reason in family.excuses.items())
    assert "| `gemma3` | `gemma3_text` | `Gemma3ForCausalLM` | tied |" in page
    assert "| key `is_decoder` | only False | a causal BERT is another model than the masked one |" in page
    assert page.count("key `is_encoder_decoder`") == 1
