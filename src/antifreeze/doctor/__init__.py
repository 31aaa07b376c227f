"""What is wrong with a script, or with a process that runs: findings, with their evidence.

Nothing in here imports torch: who asks may wait for nothing.
"""
