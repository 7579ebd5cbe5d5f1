"""The source: batch and streaming reads of topics and of stores."""
