"""Pull consumers: by queue, lite pull, scheduled pulls, bounded reads."""
