"""A2A: the site as an agent, on the official SDK. A binding of NLWeb: it answers what `/ask` answers.

`routes.py`, `card.py` and `failures.py` are there from the start; the rest is loaded late, with the SDK.
"""
