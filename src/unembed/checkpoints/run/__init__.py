"""Our own checkpoints, and the folder of a run: what training writes, so that a kill at any instant loses nothing saved.

One checkpoint: state.py (a trainer as named tensors), native.py (as a folder with a manifest), intact.py (is it what was
saved?), shards.py and distributed.py (where many processes hold a part each). The run around it: folder.py, with
description.py, metrics.py and lock.py; start_ids.py answers a question about its data. Next to read: native.py, then
folder.py.
"""
