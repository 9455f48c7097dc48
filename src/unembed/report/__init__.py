"""Results of a run as one self-contained HTML file. Read markup.py, then parts.py, then page.py."""

from unembed.report.page import build

__all__ = ["build"]
