"""The result of a check as text, JSON, SARIF, annotations or a diff."""
