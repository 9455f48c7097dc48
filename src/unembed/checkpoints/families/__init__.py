"""The families of checkpoints that can be read and written, one line each; the files are in the order of this tuple.

nanogpt.py, llama2c.py, microgpt.py and gguf.py are families of single files, which ../foreign/single_files.py and
../foreign/gguf.py name. Next to read: base.py.
"""

from unembed.checkpoints.families import bert, gemma, gpt2, llama, mistral, neox, qwen, roberta, stablelm
from unembed.checkpoints.families.base import Family

FAMILIES: tuple[Family, ...] = (
    gpt2.FAMILY,
    llama.FAMILY,
    mistral.FAMILY,
    qwen.QWEN2,
    qwen.QWEN3,
    gemma.GEMMA1,
    gemma.GEMMA2,
    gemma.GEMMA3,
    neox.FAMILY,
    bert.FAMILY,
    roberta.FAMILY,
    stablelm.FAMILY,
)
