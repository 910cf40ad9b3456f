"""What pianos do beyond recorded notes: dampers, pedals, strings in sympathy."""
