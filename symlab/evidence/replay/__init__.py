"""From records to the same cases again: rebuilt requests, the replay, records as they would be made here."""
