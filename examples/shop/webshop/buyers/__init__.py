"""buyers: simulated buyers, most of them honest."""
