"""Exploring orders: runs of one case under many schedules, up to the first that fails."""
