"""Merrow Bay, the sample site: a small harbour town with things to read, buy, visit and do."""
