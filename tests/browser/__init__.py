"""Tests that open the page in Chromium: ``make browser``."""
