"""`doctor`: problems of a cluster, and how to fix them."""
