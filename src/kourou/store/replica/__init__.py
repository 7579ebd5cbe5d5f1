"""Two stores with one log: what a slave appends, which reign each part of the log belongs to, and whether the
log of a slave continues its master's."""
