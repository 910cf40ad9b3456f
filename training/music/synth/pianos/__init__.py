"""What pianos do beyond playing one recorded note after another: dampers, pedals, mechanics.

Nothing here knows of scores or other instruments.
"""
