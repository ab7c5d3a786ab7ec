"""Where a page goes that is given no name: beside its records, where git ignores it and where no manifest lists files.

A page in a folder with a manifest would be a file that the manifest does not list, and a page in the checkout would
make the next command's records those of a changed checkout.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reports.record.bundle import SUFFIX
from reports.record.seal import MANIFEST

USUAL_NAME = "report.html"


def page_path(places: Sequence[Path | str]) -> Path:
    """Return the usual path of a page of the records in these places.

    Of one file or folder it is `<its name>.html` beside it, or beside the outermost folder with a manifest that it lies
    in. Of several places it is report.html in the working folder.
    """
    if len(places) != 1:
        return Path(USUAL_NAME)
    place = Path(places[0])
    name = place.resolve().name  # of "." and ".." too
    name = name.removesuffix(SUFFIX) if name.endswith(SUFFIX) else name.removesuffix(".json")
    if not name:
        return Path(USUAL_NAME)
    folder = _above(place)
    for above in (folder, *folder.resolve().parents):
        if (above / MANIFEST).is_file():
            folder = _above(above)
    return folder / f"{name}.html"


def _above(path: Path) -> Path:
    """Return the folder that a path is in; a relative one where the path says it."""
    return path.parent if path.name not in ("", "..") else path.resolve().parent
