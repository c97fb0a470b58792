"""NLWeb: questions in natural language over HTTP and WebSocket, in the three dialects that its clients speak.

`routes.py` and `socket.py` take requests in and `desk.py` puts them to the site. `dialects.py` tells them apart,
`models.py` reads requests, `sessions.py` keeps a conversation together. `render.py` makes answers of events, with
`shapes.py` for items and actions, `narrow.py` for what 0.54 wants narrower, and `failures.py` for errors.
"""
