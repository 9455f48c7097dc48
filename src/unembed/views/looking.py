"""What is inside a run's model on a text of its own: who wrote its answer, what its heads look at, what its blocks add.

Before it: inside.py, whose lens reads the same text. The next file to read is ../analyses.py.
"""

from dataclasses import replace

from unembed.lenses.attention_maps import attention_maps
from unembed.lenses.attribution import attribute
from unembed.lenses.stream import stream as stream_of
from unembed.results import Result
from unembed.views.inside import own_ids
from unembed.views.run import RunView

_TOLD = ("token", "target", "logit", "explained", "sum", "check_error")


def attribution(run: RunView) -> Result:
    """The parts of the score of what the model would write next."""
    found = attribute(run.model(), own_ids(run))
    tables = {name: found.tables[name] for name in ("strongest", "heads", "sources") if name in found.tables}
    return replace(found, tables=tables, values={name: found.values[name] for name in _TOLD})


def attention(run: RunView) -> Result:
    """Every head by what it looks at."""
    found = attention_maps(run.model(), own_ids(run))
    return replace(found, tables={name: found.tables[name] for name in ("scores", "heads")}, values={})


def stream(run: RunView) -> Result:
    """The updates of the blocks."""
    found = stream_of(run.model(), own_ids(run))
    return replace(found, tables={"stream": found.tables["stream"]}, values={})
