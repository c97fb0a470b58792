"""Plain HTTP endpoints: operations, items, the desk and the inspector."""
