"""From PTX text to instructions, and what they read and write."""
