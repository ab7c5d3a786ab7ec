"""Documents of records: bundles, signed statements, and the seal over a folder."""
