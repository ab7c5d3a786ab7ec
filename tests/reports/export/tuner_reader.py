"""A reader of NCCL's tuner CSV, written from what NCCL's example tuner plugin does with a file (its README and source
of June 2026), with what is surprising there: see reports/export/nccl.py."""

from dataclasses import dataclass

BUFFER = 255
"""Characters that fgets gives at once to the plugin, whose buffer has 256 bytes."""

COLLECTIVES = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")


@dataclass(frozen=True)
class Row:
    collective: str
    least: int
    most: int
    algorithm: str
    protocol: str
    channels: int
    nodes: int
    ranks: int
    pipe_ops: int
    registered: int


def pieces(text):
    for line in text.splitlines(keepends=True):
        yield from (line[start : start + BUFFER] for start in range(0, len(line), BUFFER))


def rows(text):
    found = []
    for piece in pieces(text):
        if piece[0] in "#\n":
            continue
        fields = [field.strip(" \t") for field in piece.rstrip("\n").split(",") if field][:10]
        if len(fields) < 8:
            continue
        fields += ["-1"] * (10 - len(fields))
        collective = fields[0] if fields[0] in COLLECTIVES else "allreduce"
        algorithm = fields[3] if fields[3] in ALGORITHMS else "ring"
        protocol = fields[4] if fields[4] in PROTOCOLS else "simple"
        numbers = [int(field) for field in fields[5:]]
        assert all(0 <= int(field) < 1 << 64 for field in fields[1:3])
        found.append(Row(collective, int(fields[1]), int(fields[2]), algorithm, protocol, *numbers))
    return found


def choice(text, collective, size_bytes, ranks, nodes=1, pipe_ops=1, registered=0):
    """What the plugin makes NCCL take: algorithm, protocol ("" its own) and channels."""
    for row in rows(text):
        wanted = ((row.nodes, nodes), (row.ranks, ranks), (row.pipe_ops, pipe_ops), (row.registered, registered))
        is_for_it = row.collective == collective and row.least <= size_bytes <= row.most
        if is_for_it and all(given in (-1, own) for given, own in wanted):
            return row.algorithm, row.protocol, row.channels if row.channels != -1 else 1
    return "", "", 1
