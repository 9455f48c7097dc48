"""GGUF files: their tensors alone say whether they are tied, and two tables may be one that was rounded twice.

The rounding is that of llama.cpp's own Python package. The next file to read is test_repair.py.
"""

import gguf
import numpy as np
import pytest
import torch

import unembed
from tying.folders import broken, llama, other
from unembed.checkpoints.foreign import gguf_export
from unembed.checkpoints.formats.gguf.read import read_gguf


def quantised(place, table, head, types):
    """A llama GGUF whose two tables are rounded by llama.cpp's own package."""
    model = llama(tied=False)
    with torch.no_grad():
        model.embed.table.copy_(table)
        model.head.table.copy_(head)
    plain = place.with_suffix(".plain.gguf")
    gguf_export.write(model, plain, name="q")
    plain_file = read_gguf(plain)
    writer = gguf.GGUFWriter(place, "llama")
    for name, value in plain_file.metadata.items():
        if name == "general.architecture":
            continue
        kind = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        if type(value) in kind:
            kind[type(value)](name, value)
    for name in plain_file.tensors:
        numbers = plain_file.tensor(name).numpy()
        kind = types.get(name)
        if kind is None:
            writer.add_tensor(name, np.ascontiguousarray(numbers))
        else:
            number = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(numbers, number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return place


@pytest.mark.parametrize("types", [("Q4_0", "Q8_0"), ("Q5_1", "Q8_0"), ("Q8_0", "F32"), ("Q4_1", "Q5_0")])
def test_tables_that_were_equal_before_they_were_rounded(types, tmp_path):
    table = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
    names = dict(zip(("token_embd.weight", "output.weight"), types, strict=True))
    found = unembed.tying.examine(quantised(tmp_path / "same.gguf", table, table, names))
    assert (found.values["tied"], found.values["kind"]) == (False, "rounded_twice")
    verdict = found.values["verdict"]
    assert verdict.startswith(
        f"Not tied: output.weight is a copy of token_embd.weight, rounded in another way: 'token_embd.weight' ({types[0]}) "
        f"and 'output.weight' ({types[1]}) differ by 0."
    )
    assert 0.5 < float(verdict.split("of their size, ")[1].split(" times")[0]) < 1.5
    assert broken(found) == ()


@pytest.mark.parametrize("types", [("Q4_0", "Q8_0"), ("Q5_1", "Q8_0"), ("Q8_0", "F32"), ("F16", "F32")])
def test_tables_that_were_not(types, tmp_path):
    table = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
    names = dict(zip(("token_embd.weight", "output.weight"), types, strict=True))
    found = unembed.tying.examine(quantised(tmp_path / "q.gguf", table, table + 0.3 * other(table), names))
    assert (found.values["tied"], found.values["kind"]) == (False, "two_tables")
    assert broken(found) == ()


def test_a_file_says_by_its_tensors_alone_whether_it_is_tied(tmp_path):
    gguf_export.write(llama(tied=True), tmp_path / "m.gguf", name="m")
    found = unembed.tying.examine(tmp_path / "m.gguf")
    assert found.values["verdict"] == "Tied: the file holds one table, token_embd.weight."
    (says,) = [one["detail"] for one in found.values["checks"] if one["name"] == "config"]
    assert says == "GGUF's rule says tied"
