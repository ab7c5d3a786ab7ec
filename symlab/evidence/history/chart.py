"""A picture of one series: its times, one a world, in order, with its change points."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from symlab.evidence.history.changes import Change

_WIDTH, _HEIGHT = 640, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 14, 30
_POINT, _CHANGE = "#0072b2", "#d55e00"


def chart(title: str, times: Sequence[float], versions: Sequence[int], found: Sequence[Change]) -> str:
    """Return the picture as SVG. times are in microseconds, in order; versions are their versions' numbers."""
    low, high = min(times), max(times)
    spare = (high - low or high) * 0.08
    low, high = low - spare, high + spare

    def x(at: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (at + 0.5) / len(times)

    def y(us: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - us) / (high - low)

    parts = [_text(_LEFT - 6, y(us) + 4, f"{us:.4g}", "end") for us in (min(times), max(times))]
    parts.append(_text(_LEFT - 6, _TOP - 3, "us", "end"))
    parts.append(_line(_LEFT, y(low), _WIDTH - _RIGHT, y(low), "#9aa3ad", 1))
    for at, version in enumerate(versions):
        if not at or version != versions[at - 1]:
            parts.append(_text(x(at), _HEIGHT - 10, f"v{version}", "middle"))
            parts.append(_line(x(at), y(low), x(at), y(low) + 5, "#9aa3ad", 1))
    ends = [0, *(change.at for change in found), len(times)]
    for start, end in pairwise(ends):
        level = statistics.median(times[start:end])
        parts.append(_line(x(start - 0.4), y(level), x(end - 0.6), y(level), _CHANGE if found else "#9aa3ad", 1.5))
    for change in found:
        left, right = x(change.first - 0.5), x(change.last - 0.5)
        width = max(right - left, 1.5)
        parts.append(
            f'<rect x="{left:.1f}" y="{_TOP}" width="{width:.1f}" height="{y(low) - _TOP:.1f}" fill="{_CHANGE}" '
            'fill-opacity="0.3"/>'
        )
    parts += [f'<circle cx="{x(at):.1f}" cy="{y(us):.1f}" r="3" fill="{_POINT}"/>' for at, us in enumerate(times)]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11" font-family="sans-serif" '
        f'fill="currentColor">{escape(words)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'
