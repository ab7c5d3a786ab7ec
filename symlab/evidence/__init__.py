"""Why believe it? Audits, replays, publication, signatures, and how cases changed."""
