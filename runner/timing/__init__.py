"""Times by a GPU's own clock: measuring, combining what ranks measured, clocks and links."""
