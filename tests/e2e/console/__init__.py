"""The console in a browser, at a cluster with something of everything (kit/story.py)."""
