"""Lines that a program writes into a page, between the markers <!-- name --> and <!-- end -->."""


def included(page, name, lines):
    """Return a page with lines between its markers. Raises ValueError if it has none."""
    before, marker, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not end:
        raise ValueError(f"the page has no place for lines: <!-- {name} --> and <!-- end -->, each on a line")
    return before + marker + "\n".join(["", *lines, "", end]) + after
