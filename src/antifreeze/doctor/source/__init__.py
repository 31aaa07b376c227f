"""Reading Python source without running it: names, values, classes, loaders. No torch."""
