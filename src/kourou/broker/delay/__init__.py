"""Delayed messages: by level (schedule_service.py) and by time (timer_service.py)."""
