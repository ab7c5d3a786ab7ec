"""A Fabric on the CPU that interprets PTX; it knows no kernel of ours."""
