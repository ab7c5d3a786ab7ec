"""Audits: two sets of records beside each other, one set against itself, and the statistics that both rest on."""
