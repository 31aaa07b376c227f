"""Tests of what users put in their datasets."""
