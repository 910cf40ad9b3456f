"""What pianos do beyond recorded notes: dampers, pedals, mechanics."""
