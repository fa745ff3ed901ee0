"""The product's benchmark: ratios against yardsticks measured in the same run.

`import fifoq` does not load it; `fifoq bench` and `python -m fifoq.bench` do.
"""
