"""The report as one HTML file that needs nothing else: page makes it, figures_of reads its figures back."""

from __future__ import annotations

from reports.html.document import figures_of as figures_of
from reports.html.document import page as page
