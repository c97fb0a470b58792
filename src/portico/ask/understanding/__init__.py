"""From a question and its conversation to a query plan. Reads words; asks no store."""
