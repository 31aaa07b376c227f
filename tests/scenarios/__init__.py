"""The scenario scripts, the gallery and the demo, run as a user runs them."""
