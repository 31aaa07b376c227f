"""Files on the disk: which ones to check, and how they are read and written."""
