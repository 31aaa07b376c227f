"""Read Python source without running it: names, values, classes, loaders. Never imports torch."""
