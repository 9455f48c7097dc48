"""Qwen presets: 1.5, 2, 2.5 and 3, all of Llama's shape with two changes.

Up to 2.5 the projections of q, k and v have biases; Qwen3 drops them and normalises q and k head by head before the
rotation, and its heads together need not be as wide as the stream. Whether the head is tied goes by size, and the flag
in the file decides. The next file to read is gemma.py.
"""

from functools import partial

from unembed.model.presets.llama import Size, llama_spec
from unembed.model.presets.row import Row
from unembed.model.spec import TransformerSpec

_PADDING = "151,643 tokens and a few specials; the rows after them are padding."
_UNTIED = (
    "Untied by the file's flag as remembered; a preset of another library ties the 1.8B chat model. Read the flag."
)

# name: (size, eps, what is odd); theta is 1e6 throughout
_WITH_BIASES = {
    "qwen1.5-0.5b": (
        Size(151_936, 1024, 24, 16, 16, 64, 2816, 32_768, True),
        1e-6,
        "Public lists say 620M, which counts the table twice (619,570,176).",
    ),
    "qwen1.5-1.8b": (Size(151_936, 2048, 24, 16, 16, 128, 5504, 32_768, False), 1e-6, _UNTIED),
    "qwen1.5-4b": (
        Size(151_936, 2560, 40, 20, 20, 128, 6912, 32_768, False),
        1e-6,
        "Theta is not confirmed (1e6 here, perhaps 5e6). " + _UNTIED,
    ),
    "qwen1.5-7b": (
        Size(151_936, 4096, 32, 32, 32, 128, 11_008, 32_768, False),
        1e-6,
        "The shape is remembered, not read from the file. " + _UNTIED,
    ),
    "qwen2-0.5b": (Size(151_936, 896, 24, 14, 2, 64, 4864, 131_072, True), 1e-6, ""),
    "qwen2-1.5b": (Size(151_936, 1536, 28, 12, 2, 128, 8960, 32_768, True), 1e-6, ""),
    "qwen2-7b": (
        Size(152_064, 3584, 28, 28, 4, 128, 18_944, 131_072, False),
        1e-6,
        "The announcement's 7.07B leaves one table out. The instruct file says context 32,768.",
    ),
    "qwen2-72b": (
        Size(152_064, 8192, 80, 64, 8, 128, 29_568, 131_072, False),
        1e-5,
        "Eps is not confirmed (1e-5 here; files differ): read config.json.",
    ),
    "qwen2.5-0.5b": (Size(151_936, 896, 24, 14, 2, 64, 4864, 32_768, True), 1e-6, ""),
    "qwen2.5-1.5b": (Size(151_936, 1536, 28, 12, 2, 128, 8960, 131_072, True), 1e-6, ""),
    "qwen2.5-3b": (Size(151_936, 2048, 36, 16, 2, 128, 11_008, 32_768, True), 1e-6, ""),
    "qwen2.5-7b": (Size(152_064, 3584, 28, 28, 4, 128, 18_944, 131_072, False), 1e-6, ""),
    "qwen2.5-14b": (Size(152_064, 5120, 48, 40, 8, 128, 13_824, 131_072, False), 1e-5, ""),
    "qwen2.5-32b": (Size(152_064, 5120, 64, 40, 8, 128, 27_648, 131_072, False), 1e-5, ""),
    "qwen2.5-72b": (Size(152_064, 8192, 80, 64, 8, 128, 29_568, 131_072, False), 1e-5, ""),
}

_WIDER = "All heads together are wider than the stream."

_WITH_QK_NORM = {
    "qwen3-0.6b": (Size(151_936, 1024, 28, 16, 8, 128, 3072, 40_960, True), 1e-6, _WIDER),
    "qwen3-1.7b": (Size(151_936, 2048, 28, 16, 8, 128, 6144, 40_960, True), 1e-6, ""),
    "qwen3-4b": (Size(151_936, 2560, 36, 32, 8, 128, 9728, 40_960, True), 1e-6, _WIDER),
    "qwen3-8b": (Size(151_936, 4096, 36, 32, 8, 128, 12_288, 40_960, False), 1e-6, ""),
    "qwen3-14b": (Size(151_936, 5120, 40, 40, 8, 128, 17_408, 40_960, False), 1e-6, ""),
    "qwen3-32b": (Size(151_936, 5120, 64, 64, 8, 128, 25_600, 40_960, False), 1e-6, _WIDER),
}


def qwen2_spec(size: Size, eps: float) -> TransformerSpec:
    """Qwen1.5, 2 or 2.5: Llama's decoder with biases on q, k and v. Source: transformers' modeling_qwen2.py."""
    return llama_spec(size, eps=eps, theta=1e6, biases=("q", "k", "v"))


def qwen3_spec(size: Size, eps: float) -> TransformerSpec:
    """Qwen3: Llama's decoder with an RMSNorm on each head's q and k. Source: transformers' modeling_qwen3.py."""
    return llama_spec(size, eps=eps, theta=1e6, norms_qk=True)


def _source(name: str) -> str:
    family, size = name.split("-")
    return f"config.json of Qwen/{family.capitalize()}-{size.upper()}"


ROWS: dict[str, Row] = {
    name: Row(partial(make, size, eps), _source(name), f"{odd} {_PADDING}".strip())
    for make, sizes in [(qwen2_spec, _WITH_BIASES), (qwen3_spec, _WITH_QK_NORM)]
    for name, (size, eps, odd) in sizes.items()
}
