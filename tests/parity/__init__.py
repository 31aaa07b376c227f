"""The same program through torch's loader and ours."""
