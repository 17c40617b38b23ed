"""Tests of readers of foreign formats."""
