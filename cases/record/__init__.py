"""The record of a case and its rules: its parts, its JSON, and what many records have in common."""
