"""The only package that knows everybody: configuration to cases, cases to worlds, outcomes to records."""
