"""What pianos do beyond playing one recorded note after another."""
