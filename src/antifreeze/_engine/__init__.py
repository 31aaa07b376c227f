"""One iteration of a loader: the driver around the core, with and without workers."""
