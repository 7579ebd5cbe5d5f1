"""provider: a simulated payment provider, which is no part of the shop."""
