"""`brick retire`: stop the source volume when manifests cover everything in it."""
