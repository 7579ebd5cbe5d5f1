"""Tests of broker/pop."""
