"""The program's own classes on their way to a clean process, and what their code decides there."""
