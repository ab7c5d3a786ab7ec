"""From a case of the catalogue to what the simulator's clock tells of its launches."""
