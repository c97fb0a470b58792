"""Where items come from: readers of files, sites and databases, and how what they read is stored and refreshed."""
