"""Tests here work in memory (tests/memory_folder.py)."""

from tests.memory_folder import temporary_folder, tmp_path

__all__ = ["temporary_folder", "tmp_path"]
