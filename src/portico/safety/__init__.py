"""What may run. Every request to the site is decided here.

`gate.py` decides, and `guard.py` checks a call once more before it runs. `access.py` is what protocols see of it.
Agents at work are in `loop.py`, `reporting.py` and `evaluation.py`; what people decide of them in `supervision.py`.
"""
