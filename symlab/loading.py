"""Records from disk, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from cases.record.record import Record
from reports.record import bundle
from reports.table import table
from reports.table.text import counted

if TYPE_CHECKING:
    import pandas


class Records(Sequence[Record]):
    """Records in the order in which their cases began; records() and experiment() return them.

    A sequence of Record: `id`, `status`, `case`, `reason`, `check`, `timing`, `fabric`, `kernel`, ...
    """

    def __init__(self, found: Sequence[Record]) -> None:
        self._found = tuple(found)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: int | slice) -> Record | Records:
        return Records(self._found[index]) if isinstance(index, slice) else self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._found)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'record')}>"

    def rows(self) -> list[dict[str, object]]:
        """Return a dictionary a case, with the columns of `symlab table --format json`; timed worlds of a case are one
        row. Sizes are in bytes, times in microseconds, bandwidths in GB/s; a value that does not exist is None."""
        return table.values(self._found)

    def table(self) -> str:
        """Return the table that `symlab table` prints, as plain text."""
        return table.plain(self._found)

    def to_pandas(self) -> pandas.DataFrame:
        """Return rows() as a DataFrame. Raises ValueError if pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise ValueError("to_pandas needs pandas, which is not installed: pip install pandas") from None
        return pandas.DataFrame(self.rows())


def records(*places: Path | str) -> Records:
    """Load records, each once. places: files, folders (with all folders below them) and bundles (.jsonl.xz).

    The result is a sequence of records with `rows()`, `table()` and `to_pandas()`.

    Raises ValueError, naming the place, for what can't be read and for a place without records.

    >>> import symlab
    >>> found = symlab.records("reports/published/h200-x2")
    >>> found[0].case.op, found[0].status
    ('all_reduce', <Status.PASSED: 'PASSED'>)
    >>> found.to_pandas()["algorithm"].nunique()
    14
    """
    if not places:
        raise ValueError("no place of records is given (places), give a file, a folder or a bundle")
    return Records(bundle.read(places))
