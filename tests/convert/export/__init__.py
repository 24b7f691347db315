"""Tests of attention in other people's tools."""
