"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

from reports.html.document import page as page
