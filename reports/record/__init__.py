"""The record, its codec, bundles of records, and the seal over a folder."""
