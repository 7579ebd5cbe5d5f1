"""Metrics in Prometheus' terms: families of samples, their text, and what every process reports of itself.

Below all servers and clients: nothing here knows a broker. What a broker reports is in `broker/metrics/`.
"""
