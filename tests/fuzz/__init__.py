"""Damaged files and requests, thousands of them: each must be read rightly or refused in one line.

    python -m tests.fuzz --cases 10000 --seed 7     # the long version: `make fuzz SEED=7`
    python -m tests.fuzz --target counts --only 41  # one case again

A case is made from a seed alone, so a failure can be repeated by its number. `test_fuzz.py` runs a
few hundred of them with every test run.
"""
