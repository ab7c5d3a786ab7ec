"""The contract between collectives and the machine they run on, and the owning of symmetric memory."""
