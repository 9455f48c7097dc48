"""Our models against transformers' on the same random weights. One file of data a family, one line each below."""

from parity import bert, gemma, gpt2, llama, mistral, neox, qwen, roberta, stablelm
from parity.harness import Parity

PARITIES: tuple[Parity, ...] = (
    gpt2.PARITY,
    llama.PARITY,
    mistral.PARITY,
    qwen.QWEN2,
    qwen.QWEN3,
    gemma.GEMMA1,
    gemma.GEMMA2,
    gemma.GEMMA3,
    neox.PARITY,
    bert.PARITY,
    roberta.PARITY,
    stablelm.PARITY,
)

BY_NAME = {parity.family: parity for parity in PARITIES}
