"""Shared by all tests: one hypothesis profile, quiet about time on a busy machine."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The same examples every time, so that a change is judged by what it changed.
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# `make soak` looks ten times as far, and elsewhere each time.
settings.register_profile(
    "soak", deadline=None, max_examples=1_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("KOUROU_HYPOTHESIS_PROFILE", "default"))
