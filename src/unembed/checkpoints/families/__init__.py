"""The families of checkpoints that can be read and written, one line each; the files are in the order of this tuple."""

from unembed.checkpoints.families import gpt2, llama
from unembed.checkpoints.families.base import Family

FAMILIES: tuple[Family, ...] = (
    gpt2.FAMILY,
    llama.FAMILY,
)
