"""Random faults against epochs whose content is known, and healthy runs that must be left alone."""
