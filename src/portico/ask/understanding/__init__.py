"""From a question and its conversation to a query plan. Reads words; asks no store.

`planner.py` makes the plan: of what `followups.py` and `references.py` take from the conversation, and of the
`constraints.py` that `parsers.py` reads in the words. `fields.py` knows what the fields of collections mean.
"""
