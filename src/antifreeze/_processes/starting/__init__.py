"""Where worker processes come from: forks, zygotes and clean processes."""
