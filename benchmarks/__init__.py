"""Benchmarks: ratios against yardsticks measured in the same run."""
