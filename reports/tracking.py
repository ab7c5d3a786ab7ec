"""Where MLflow keeps runs, and the tags that tell ours."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

COMMAND_TAG, SERIES_TAG, SENT_TAG = "symlab.command", "symlab.series", "symlab.sent"
"""Tags of a run: its command's name; its series' name, "" of a command's run; which records were sent, "" until all
that there are have been."""

COMPLETE_TAG, LAYOUT_TAG, MANIFEST_TAG = "symlab.complete", "symlab.layout", "symlab.manifest"
"""Tags of a command's run: whether all that was asked for is there; LAYOUT; the digest of its folder's manifest."""

LAYOUT = "5"
"""How names are given, and what is attached. A command that was sent in another way is sent again, to the same runs."""

PARENT_TAG = "mlflow.parentRunId"


def resolved_uri(uri: str, folder: Path | None = None) -> str:
    """The URI as MLflow takes it: of an sqlite database with its absolute path, quoted; others as they are.

    A relative path starts at folder, by default the working folder, and ~ is the home folder. Unquoted, SQLAlchemy
    would take what follows a ? in a folder's name for options, and %41 for an A.
    """
    path = database_path(uri, folder)
    if path is None:
        return uri
    _, mark, options = uri.partition("?")
    scheme, place = uri.partition(":")[0], quoted(str(path))
    if scheme == "sqlite" and place != str(path):
        scheme = "sqlite+pysqlite"  # the same; for "sqlite" MLflow would make the folder with the quoted name, too
    return f"{scheme}:///{place}{mark}{options}"


def database_path(uri: str, folder: Path | None = None) -> Path | None:
    """The absolute path of an sqlite URI's file, see resolved_uri; None for a server's URI."""
    if not uri.partition(":")[0].startswith("sqlite"):
        return None
    given = urllib.parse.unquote(uri.partition(":///")[2].partition("?")[0], errors="surrogateescape")
    return (folder or Path.cwd()) / Path(given).expanduser()


def quoted(path: str) -> str:
    """Return a path as a URI has it."""
    return urllib.parse.quote(path, errors="surrogateescape")


class Unreachable(ValueError):
    """A server does not answer; the message says why, in one line."""


def check_server(uri: str, patience_s: float) -> None:
    """See whether anything answers at a server's URI. Raises Unreachable if nothing does."""
    import urllib.error
    import urllib.request

    # MLflow sends user and password of the URI; urllib would take them for a part of the host's name.
    parts = urllib.parse.urlsplit(uri)
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/health")
    try:
        urllib.request.urlopen(urllib.parse.urlunsplit(place), timeout=patience_s).close()
    except urllib.error.HTTPError:
        pass  # a server answers; MLflow itself says what is wrong with it
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)  # of urllib's own error, which would say "<urlopen error ..>"
        raise Unreachable(first_line_of(reason) if isinstance(reason, OSError) else first_line_of(error)) from error


def first_line_of(error: BaseException) -> str:
    """Return the first line of what an error says; without any, its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
