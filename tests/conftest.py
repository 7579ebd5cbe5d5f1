"""Shared by all tests: one hypothesis profile, quiet about time on a busy machine, and a plain SIGINT."""

from __future__ import annotations

import os
import signal

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

# A shell that starts tests in the background has SIGINT ignored, and so would the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
