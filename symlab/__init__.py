"""The public API of symlab: a dozen names, each loaded when it is first used."""
