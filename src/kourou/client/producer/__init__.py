"""Producers: batching, queue choice, retries, requests with replies."""
