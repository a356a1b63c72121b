"""The mathematics: counts in, answers and their radii out. numpy and scipy only."""
