"""The languages that are read and answered in, one data file each. `loader` reads them."""
