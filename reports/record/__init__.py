"""Documents of records: bundles, and the seal over a folder."""
